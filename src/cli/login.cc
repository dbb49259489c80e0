// `sandbar login`: the decision on a program that asks for a key.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {

Task<int> Login(ApiClient* api, const Options* options, LoginCommand command) {
  const bool approve = command.verb == "approve";
  json::value sent = approve ? GrantJson(command.grant) : json::object{};
  std::string path = "/x/v1/logins/" + wire::EncodeComponent(command.code) + "/" + command.verb;
  SB_CO_TRY(json::object answer, co_await api->Call("POST", std::move(path), std::move(sent)));
  if (options->json) {
    SB_CO_TRYV(Out(wire::NdjsonLine(answer)));
    co_return 0;
  }
  const json::object login = Object(answer, "login");
  const std::string who = fmt::format("{} at {}", Text(login, "client"), Text(login, "address"));
  if (!approve) {
    Note("denied the login of " + who);
    co_return 0;
  }
  const json::object key = Object(answer, "key");
  Note(fmt::format("approved the login of {}: it gets the key {} ({}, project {}), for {}", who, Text(key, "id"),
                   Text(key, "role"), Text(key, "projectId"),
                   Age(Number(key, "expiresAt") - Number(key, "createdAt"))));
  Note(fmt::format("to end it before: sandbar key revoke {}", Text(key, "id")));
  co_return 0;
}

}  // namespace sandbar::cli
