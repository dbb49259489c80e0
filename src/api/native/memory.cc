// Pause and resume: sandboxes that go on with their processes.
#include <boost/json.hpp>

#include "api/call.h"
#include "api/handlers.h"
#include "api/vercel/shapes.h"
#include "wire/json_decode.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

struct ResumeBody {
  std::optional<std::string> from;
};
BOOST_DESCRIBE_STRUCT(ResumeBody, (), (from))

Result<sandbox::ResumeFrom> ParseFrom(const std::optional<std::string>& from) {
  if (!from) return sandbox::ResumeFrom::kEither;
  if (*from == "memory") return sandbox::ResumeFrom::kMemory;
  if (*from == "disk") return sandbox::ResumeFrom::kDisk;
  return Fail(Code::kBadRequest, "`from`: memory or disk");
}

}  // namespace

Task<> NativePause(Call* call) {
  std::string name = call->Param("name");
  auto view = co_await call->domain->sandboxes->Pause(call->scope, std::move(name));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body = ViewJson(*view, call->preview_urls, false, false);
  if (view->snapshot) body["snapshot"] = SnapshotJson(*view->snapshot, false);
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeResume(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  if (text.empty()) text = "{}";
  SB_CO_TRY(ResumeBody wanted, wire::DecodeJson<ResumeBody>(text, {.bytes = kMaxJsonBody}));
  SB_CO_TRY(sandbox::ResumeFrom from, ParseFrom(wanted.from));
  std::string name = call->Param("name");
  auto view = co_await call->domain->sandboxes->Resume(call->scope, std::move(name), from);
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body = ViewJson(*view, call->preview_urls, false, true);
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
