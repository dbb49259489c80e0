// Named sandboxes: create, get (and resume), list, update, delete.
#include <boost/json.hpp>

#include "api/call.h"
#include "api/handlers.h"
#include "api/vercel_requests.h"
#include "api/vercel_shapes.h"

namespace sandbar::api {

namespace json = boost::json;

Task<> CreateSandbox(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(CreateRequest request, ParseCreate(text, call->version));
  SB_CO_TRYV(call->UseProject(request.project));
  auto view = co_await call->service->Create(call->scope, std::move(request.spec));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body = ViewJson(*view, call->preview_urls, call->v1(), false);
  co_return co_await call->Reply(std::move(body));
}

Task<> GetSandbox(Call* call) {
  bool resume = call->Flag("resume");
  std::string name = call->Param("name");
  auto view = co_await call->service->Get(call->scope, std::move(name), resume);
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body = ViewJson(*view, call->preview_urls, false, resume);
  co_return co_await call->Reply(std::move(body));
}

Task<> ListSandboxes(Call* call) {
  SB_CO_TRY(sandbox::ListQuery query, ParseListQuery(call->query, false));
  auto page = co_await call->service->List(call->scope, std::move(query));
  if (!page) co_return std::unexpected(std::move(page).error());
  json::array items;
  for (const store::Sandbox& sandbox : page->items) items.emplace_back(SandboxJson(sandbox, nullptr));
  json::object body{{"sandboxes", std::move(items)}, {"pagination", PaginationJson(page->items.size(), page->next)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> UpdateSandbox(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(UpdateRequest request, ParseUpdate(text));
  const bool ports_given = request.spec.ports.has_value();
  std::string name = call->Param("name");
  auto sandbox = co_await call->service->Update(call->scope, std::move(name), std::move(request.spec));
  if (!sandbox) co_return std::unexpected(std::move(sandbox).error());
  json::object body{{"sandbox", SandboxJson(*sandbox, nullptr)}};
  if (ports_given) body["routes"] = RoutesJson(sandbox->routes, call->preview_urls);
  co_return co_await call->Reply(std::move(body));
}

Task<> ForkSandbox(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(sandbox::ForkSpec spec, ParseFork(text));
  std::string name = call->Param("name");
  auto view = co_await call->service->Fork(call->scope, std::move(name), std::move(spec));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body = ViewJson(*view, call->preview_urls, false, false);
  co_return co_await call->Reply(std::move(body));
}

Task<> DeleteSandbox(Call* call) {
  std::string name = call->Param("name");
  bool orphans = call->Flag("deleteOrphanSnapshots");
  auto sandbox = co_await call->service->Delete(call->scope, std::move(name), orphans);
  if (!sandbox) co_return std::unexpected(std::move(sandbox).error());
  json::object body{{"sandbox", SandboxJson(*sandbox, nullptr)}};
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
