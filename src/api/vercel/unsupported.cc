// Routes of the protocol whose feature this server does not have. An object that cannot exist is not found, a list of
// such objects is empty, and making one is refused with what is missing; the sandbox or session in the path is looked
// up first, so that unknown and stopped ones answer as everywhere.
#include "api/call.h"
#include "api/handlers.h"

namespace sandbar::api {
Task<> OpenInteractive(Call* call) {
  const std::string id = call->Param("session");
  auto view = co_await call->domain->sessions->Get(call->scope, id);
  if (!view) co_return std::unexpected(std::move(view).error());
  if (view->session.status == store::Status::kStopped) co_return Fail(Code::kStopped, "the session was stopped");
  std::string why = "interactive shells are not available on this server: run commands instead";
  if (call->first_use) {
    // Nothing was ever done in it, and its maker leaves now: it would run until its timeout for nobody.
    auto stopped = co_await call->domain->sessions->Stop(call->scope, id);
    why += stopped ? "; sandbox " + view->sandbox.name + ", which was made for this shell, has been stopped"
                   : "; sandbox " + view->sandbox.name + " is still running";
  }
  co_return Fail(Code::kUnsupported, std::move(why));
}

}  // namespace sandbar::api
