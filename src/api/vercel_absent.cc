// Routes of the protocol whose feature this server does not have. An object that cannot exist is not found, a list of
// such objects is empty, and making one is refused with what is missing; the sandbox or session in the path is looked
// up first, so that unknown and stopped ones answer as everywhere.
#include "api/call.h"
#include "api/handlers.h"

namespace sandbar::api {
namespace {

Task<> RefuseOnSession(Call* call, std::string why) {
  std::string id = call->Param("session");
  auto view = co_await call->service->GetSession(call->scope, std::move(id));
  if (!view) co_return std::unexpected(std::move(view).error());
  if (view->session.status == store::Status::kStopped) co_return Fail(Code::kStopped, "the session was stopped");
  co_return Fail(Code::kUnsupported, std::move(why));
}

}  // namespace

Task<> OpenInteractive(Call* call) {
  return RefuseOnSession(call, "interactive shells are not available on this server: run commands instead");
}

}  // namespace sandbar::api
