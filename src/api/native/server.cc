// The native API: what the Vercel protocol does not say. Health for probes, and under /x/v1 what the CLI shows.
#include <boost/json.hpp>

#include "api/api.h"
#include "api/call.h"
#include "api/handlers.h"
#include "api/vercel/shapes.h"

namespace sandbar::api {

namespace json = boost::json;

Task<> Health(Call* call) {
  json::object body{{"status", "ok"}, {"version", call->config->version}};
  co_return co_await call->Reply(std::move(body));
}

Task<> Jwks(Call* call) {
  std::string keys = call->config->jwks;
  co_return co_await call->ReplyText(std::move(keys), "application/json");
}

Task<> NativeInfo(Call* call) {
  sandbox::ServerInfo info = call->domain->server->Info();
  json::array engines;
  for (const engine::EngineInfo& e : info.engines) {
    json::object row{{"name", e.name}, {"class", e.isolation_class}, {"usable", e.usable}};
    if (!e.usable) row["whyNot"] = e.why_not;
    row["nesting"] = e.usable && e.no_nesting.empty();
    if (e.usable && !e.no_nesting.empty()) row["whyNoNesting"] = e.no_nesting;
    engines.emplace_back(std::move(row));
  }
  json::object body{{"version", call->config->version},
                    {"engine", info.engine},
                    {"isolationClass", info.isolation_class},
                    {"engines", std::move(engines)},
                    {"defaultNetworkMode", info.default_network_mode},
                    {"running", info.running},
                    {"url", call->base_url},
                    {"previewUrl", call->preview_urls.before + "*" + call->preview_urls.after},
                    {"teamId", call->scope.team},
                    {"projectId", call->scope.project}};
  const sandbox::Principal& caller = call->caller();
  json::object key{{"id", caller.key_id}, {"name", caller.name}, {"role", store::KeyRoleName(caller.role)}};
  if (caller.expires_at_ms) key["expiresAt"] = *caller.expires_at_ms;
  body["key"] = std::move(key);
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeRoutes(Call* call) {
  json::array routes;
  for (const RouteInfo& route : Api::Routes()) {
    json::object row{{"method", route.method}, {"pattern", route.pattern}, {"auth", route.role.has_value()}};
    if (route.role) row["role"] = store::KeyRoleName(*route.role);
    routes.emplace_back(std::move(row));
  }
  json::object body{{"routes", std::move(routes)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeImages(Call* call) {
  SB_CO_TRY(std::vector<images::Image> list, call->catalog->List());
  json::array rows;
  for (const images::Image& image : list) {
    json::object row{{"name", image.name}, {"digest", image.digest}, {"runtime", image.runtime},
                     {"user", image.user}, {"cwd", image.cwd},       {"layers", image.layers.size()}};
    rows.emplace_back(std::move(row));
  }
  json::object body{{"images", std::move(rows)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeInspect(Call* call) {
  std::string name = call->Param("name");
  auto view = co_await call->domain->sandboxes->Get(call->scope, std::move(name), false);
  if (!view) co_return std::unexpected(std::move(view).error());
  const store::Session& session = view->session;
  json::object body = ViewJson(*view, call->preview_urls, false, false);
  body["image"] = session.image;
  // What `vcpus` asks for, and what the host has for it at most.
  body["cpu"] = json::object{{"vcpus", session.vcpus},
                             {"effectiveCores", std::min<double>(session.vcpus, call->config->machine_cores)}};
  body["isolation"] = json::object{{"engine", session.engine}, {"class", session.isolation_class}};
  if (!session.stop_reason.empty()) body["stopReason"] = session.stop_reason;
  auto notices = co_await call->domain->sandboxes->Notices(call->scope, view->sandbox.name);
  if (!notices) co_return std::unexpected(std::move(notices).error());
  json::array said;
  for (const store::Notice& n : *notices) said.emplace_back(json::object{{"at", n.at}, {"text", n.text}});
  if (!said.empty()) body["notices"] = std::move(said);
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeDenials(Call* call) {
  std::string id = call->Param("session");
  auto view = co_await call->domain->sessions->Network(call->scope, std::move(id));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::array rows;
  for (const egress::Denial& d : view->denials) {
    json::object row{{"at", d.at_ms}, {"kind", d.kind}, {"target", d.target}, {"reason", d.reason}, {"hint", d.hint}};
    rows.emplace_back(std::move(row));
  }
  json::object body{{"denials", std::move(rows)}};
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
