// Drives: get or create, list, delete.
#include <boost/json.hpp>

#include "api/call.h"
#include "api/handlers.h"
#include "api/vercel/requests.h"
#include "api/vercel/shapes.h"

namespace sandbar::api {

namespace json = boost::json;

Task<> ListDrives(Call* call) {
  SB_CO_TRY(sandbox::ListQuery query, ParseListQuery(call->query, false));
  auto page = co_await call->domain->drives->List(call->scope, std::move(query));
  if (!page) co_return std::unexpected(std::move(page).error());
  json::array items;
  for (const sandbox::DriveView& view : page->items) items.emplace_back(DriveJson(view));
  json::object body{{"drives", std::move(items)}, {"pagination", PaginationJson(page->items.size(), page->next)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> MakeDrive(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(DriveRequest request, ParseDrive(text));
  SB_CO_TRYV(call->UseProject(request.project));
  std::string name = call->Param("drive");
  auto view = co_await call->domain->drives->Make(call->scope, std::move(name), std::move(request.spec));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body{{"drive", DriveJson(*view)}};
  const int status = view->created ? 201 : 200;
  co_return co_await call->Reply(std::move(body), status);
}

Task<> DeleteDrive(Call* call) {
  std::string name = call->Param("drive");
  auto view = co_await call->domain->drives->Delete(call->scope, std::move(name));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body{{"drive", DriveJson(*view)}};
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
