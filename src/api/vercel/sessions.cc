// Sessions (v1: sandboxes): list, get, stop, extend the timeout, switch the network policy.
#include <boost/json.hpp>

#include "api/call.h"
#include "api/handlers.h"
#include "api/vercel/requests.h"
#include "api/vercel/shapes.h"
#include "egress/policy_json.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

json::object SessionPageJson(const sandbox::Page<store::Session>& page, const sandbox::ListQuery& query, bool v1) {
  json::array items;
  for (const store::Session& session : page.items) items.emplace_back(SessionJson(session));
  size_t count = items.size();
  if (!v1) return {{"sessions", std::move(items)}, {"pagination", PaginationJson(count, page.next)}};
  // v1 pages by createdAt: the next page is what was made before the last of this one.
  std::optional<int64_t> next, prev;
  if (!page.next.empty() && count > 0) next = page.items.back().created_at;
  if (query.until && count > 0) prev = page.items.front().created_at;
  return {{"sandboxes", std::move(items)}, {"pagination", NumericPaginationJson(count, next, prev)}};
}

json::object Wrapped(const store::Session& session, bool v1) {
  return {{WrapperKey(v1), SessionJson(session)}};
}

}  // namespace

Task<> ListSessions(Call* call) {
  SB_CO_TRY(sandbox::ListQuery query, ParseListQuery(call->query, call->v1()));
  sandbox::ListQuery asked = query;
  auto page = co_await call->domain->sessions->List(call->scope, std::move(asked));
  if (!page) co_return std::unexpected(std::move(page).error());
  json::object body = SessionPageJson(*page, query, call->v1());
  co_return co_await call->Reply(std::move(body));
}

Task<> GetSession(Call* call) {
  std::string id = call->Param("session");
  auto view = co_await call->domain->sessions->Get(call->scope, std::move(id));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body = Wrapped(view->session, call->v1());
  body["routes"] = RoutesJson(view->sandbox.routes, call->preview_urls);
  co_return co_await call->Reply(std::move(body));
}

Task<> StopSession(Call* call) {
  std::string id = call->Param("session");
  auto view = co_await call->domain->sessions->Stop(call->scope, std::move(id));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body = Wrapped(view->session, call->v1());
  if (!call->v1()) body["sandbox"] = SandboxJson(view->sandbox, &view->session);
  if (!call->v1() && view->snapshot) body["snapshot"] = SnapshotJson(*view->snapshot, false);
  co_return co_await call->Reply(std::move(body));
}

Task<> ExtendTimeout(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(int64_t duration, ParseExtend(text));
  std::string id = call->Param("session");
  auto session = co_await call->domain->sessions->ExtendTimeout(call->scope, std::move(id), duration);
  if (!session) co_return std::unexpected(std::move(session).error());
  json::object body = Wrapped(*session, call->v1());
  co_return co_await call->Reply(std::move(body));
}

Task<> SetNetworkPolicy(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(egress::NetworkPolicy policy, egress::ParsePolicy(text));
  std::string id = call->Param("session");
  auto session = co_await call->domain->sessions->SetNetwork(call->scope, std::move(id), std::move(policy));
  if (!session) co_return std::unexpected(std::move(session).error());
  json::object body = Wrapped(*session, call->v1());
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
