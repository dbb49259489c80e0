// Snapshots: make, list, get, delete, the tree.
#include <boost/json.hpp>
#include <charconv>

#include "api/call.h"
#include "api/handlers.h"
#include "api/vercel/requests.h"
#include "api/vercel/shapes.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr int kDefaultTree = 10;

json::object NodeJson(const sandbox::SnapshotTreeNode& node) {
  json::array siblings;
  for (const store::Snapshot& s : node.siblings) siblings.emplace_back(SnapshotJson(s, false));
  std::string count = std::to_string(node.siblings.size() + 1);
  return {{"snapshot", SnapshotJson(node.snapshot, false)}, {"siblings", std::move(siblings)}, {"count", count}};
}

Result<int> TreeLimit(const wire::Query& query) {
  auto text = query.Get("limit");
  if (!text) return kDefaultTree;
  int n = 0;
  auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), n);
  if (ec != std::errc{} || end != text->data() + text->size() || n < 1 || n > 10)
    return Fail(Code::kBadRequest, "`limit`: 1 to 10");
  return n;
}

}  // namespace

Task<> TakeSnapshot(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(auto expiration, ParseSnapshot(text));
  std::string id = call->Param("session");
  auto taken = co_await call->domain->snapshots->Take(call->scope, std::move(id), expiration);
  if (!taken) co_return std::unexpected(std::move(taken).error());
  json::object body{{"snapshot", SnapshotJson(taken->snapshot, call->v1())}};
  body[WrapperKey(call->v1())] = SessionJson(taken->session);
  co_return co_await call->Reply(std::move(body), 201);
}

Task<> ListSnapshots(Call* call) {
  SB_CO_TRY(sandbox::ListQuery query, ParseListQuery(call->query, call->v1()));
  sandbox::ListQuery asked = query;
  auto page = co_await call->domain->snapshots->List(call->scope, std::move(asked));
  if (!page) co_return std::unexpected(std::move(page).error());
  json::array items;
  for (const store::Snapshot& s : page->items) items.emplace_back(SnapshotJson(s, call->v1()));
  size_t count = items.size();
  json::object body{{"snapshots", std::move(items)}};
  std::optional<int64_t> next, prev;
  if (!page->next.empty() && count > 0) next = page->items.back().created_at;
  if (query.until && count > 0) prev = page->items.front().created_at;
  body["pagination"] = call->v1() ? NumericPaginationJson(count, next, prev) : PaginationJson(count, page->next);
  co_return co_await call->Reply(std::move(body));
}

Task<> GetSnapshot(Call* call) {
  std::string id = call->Param("snapshot");
  auto snapshot = co_await call->domain->snapshots->Get(call->scope, std::move(id));
  if (!snapshot) co_return std::unexpected(std::move(snapshot).error());
  json::object body{{"snapshot", SnapshotJson(*snapshot, call->v1())}};
  co_return co_await call->Reply(std::move(body));
}

Task<> DeleteSnapshot(Call* call) {
  std::string id = call->Param("snapshot");
  auto snapshot = co_await call->domain->snapshots->Delete(call->scope, std::move(id));
  if (!snapshot) co_return std::unexpected(std::move(snapshot).error());
  json::object body{{"snapshot", SnapshotJson(*snapshot, call->v1())}};
  co_return co_await call->Reply(std::move(body));
}

Task<> GetSnapshotTree(Call* call) {
  SB_CO_TRY(int limit, TreeLimit(call->query));
  std::string_view order = call->query.Get("sortOrder").value_or("desc");
  if (order != "asc" && order != "desc") co_return Fail(Code::kBadRequest, "`sortOrder`: must be asc or desc");
  std::string id(call->query.Get("snapshotId").value_or(""));
  if (id.empty()) co_return Fail(Code::kBadRequest, "`snapshotId`: is required");
  auto tree = co_await call->domain->snapshots->Tree(call->scope, std::move(id), limit, order == "asc");
  if (!tree) co_return std::unexpected(std::move(tree).error());
  json::array nodes;
  for (const auto& node : tree->nodes) nodes.emplace_back(NodeJson(node));
  size_t count = nodes.size();
  json::object body{{"anchor", NodeJson(tree->anchor)}, {"snapshots", std::move(nodes)}};
  body["pagination"] = PaginationJson(count, tree->next);
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
