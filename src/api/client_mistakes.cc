#include "api/client_mistakes.h"

#include <array>
#include <string_view>

namespace sandbar::api {

Result<> CheckProtocol(const http::HttpRequest& request) {
  // Its clients name themselves by this header on every call, and send no other credential to these paths.
  if (!request.Has("x-api-key") || request.Has("authorization")) return {};
  return Fail(Code::kUnsupported,
              "this server speaks the protocol of Vercel Sandbox, not that of E2B: use @vercel/sandbox or the Python "
              "client of docs/sdk.md, and unset E2B_API_URL");
}

std::string UnsetValueHint(const std::map<std::string, std::string>& params) {
  constexpr std::array<std::string_view, 5> kNothing = {"undefined", "null", "NaN", "None", "[object Object]"};
  for (const auto& [name, value] : params)
    for (std::string_view nothing : kNothing)
      if (value == nothing)
        return " (the client sent the word \"" + value + "\" as the " + name +
               ": the variable that should hold it is not set)";
  return {};
}

}  // namespace sandbar::api
