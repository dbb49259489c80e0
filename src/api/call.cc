#include "api/call.h"

#include <boost/json.hpp>
#include <charconv>

#include "api/errors.h"
#include "wire/ndjson.h"

namespace sandbar::api {

const std::string& Call::Param(std::string_view name) const {
  auto it = params.find(std::string(name));
  SB_CHECK(it != params.end());  // a handler asks for what its own patterns have
  return it->second;
}

Result<uint64_t> Call::Number(std::string_view name) const {
  const auto text = query.Get(name);
  if (!text) return 0;
  uint64_t number = 0;
  auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (ec != std::errc{} || end != text->data() + text->size())
    return Fail(Code::kBadRequest, "`" + std::string(name) + "`: must be a whole number");
  return number;
}

bool Call::Flag(std::string_view name) const {
  auto value = query.Get(name);
  return value == "true" || value == "1";
}

Result<> Call::UseProject(const std::string& project) {
  if (project.empty()) return {};
  if (!wanted.project.empty() && wanted.project != project)
    return Fail(Code::kBadRequest, "the query and the body name different projects");
  wanted.project = project;
  SB_TRY(scope, ResolveScope(scope.caller, wanted));
  return {};
}

Task<std::string> Call::Body() {
  co_return co_await exchange->ReadAll(kMaxJsonBody);
}

Task<> Call::Reply(boost::json::object body, int status) {
  http::HttpResponse response;
  response.status = status;
  response.body = wire::ToAsciiJson(body);
  response.headers = SecurityHeaders();
  co_return co_await exchange->Respond(std::move(response));
}

Task<> Call::ReplyText(std::string text, std::string content_type) {
  http::HttpResponse response;
  response.content_type = std::move(content_type);
  response.body = std::move(text);
  response.headers = SecurityHeaders();
  co_return co_await exchange->Respond(std::move(response));
}

Task<> Call::StartStream(std::string content_type) {
  std::vector<http::Header> headers = SecurityHeaders();
  std::optional<uint64_t> length;
  co_return co_await exchange->StartStream(200, std::move(content_type), std::move(headers), length);
}

Task<> Call::ReplyBytes(engine::ByteSource* source) {
  // The head waits for the first bytes: what cannot be read at all is still an error answer.
  SB_CO_TRY(std::string piece, co_await source->Next());
  SB_CO_TRYV(co_await StartStream("application/octet-stream"));
  while (!piece.empty()) {
    SB_CO_TRYV(co_await exchange->Write(std::move(piece)));
    // Too late for an answer: an error cuts the connection, so that a part is never taken for the whole.
    SB_CO_TRY(piece, co_await source->Next());
  }
  co_return co_await exchange->Finish();
}

}  // namespace sandbar::api
