// What the Vercel CLI asks to find its team and project when it was given neither. Teams and projects are only names
// here: every one that the token may act on exists.
#include <boost/json.hpp>

#include "api/call.h"
#include "api/handlers.h"
#include "api/vercel/requests.h"
#include "api/vercel/shapes.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

json::object TeamJson(const std::string& team) {
  return {{"id", team},
          {"slug", team},
          {"name", team},
          {"membership", json::object{{"role", "OWNER"}}},
          {"billing", json::object{{"plan", "pro"}}}};
}

json::object ProjectJson(const sandbox::Scope& scope, const std::string& name) {
  return {{"id", scope.project}, {"name", name}, {"accountId", scope.team}};
}

// The scope with this project; one that the token is not bound to answers as unknown.
Result<> Enter(Call* call, const std::string& project) {
  auto done = call->UseProject(project);
  if (!done && done.error().code == Code::kForbidden) return Fail(Code::kNotFound, "there is no such project");
  return done;
}

}  // namespace

Task<> GetUser(Call* call) {
  json::object user{{"id", "user_sandbar"}, {"username", "sandbar"}, {"defaultTeamId", call->scope.team}};
  json::object body{{"user", std::move(user)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> ListTeams(Call* call) {
  json::array teams{TeamJson(call->scope.team)};
  json::object body{{"teams", std::move(teams)}, {"pagination", PaginationJson(1, "")}};
  co_return co_await call->Reply(std::move(body));
}

Task<> GetTeam(Call* call) {
  const std::string& team = call->Param("team");
  if (!call->scope.any_team && team != call->scope.team) co_return Fail(Code::kNotFound, "there is no such team");
  json::object body = TeamJson(team);
  co_return co_await call->Reply(std::move(body));
}

Task<> GetProject(Call* call) {
  std::string name = call->Param("project");
  SB_CO_TRYV(Enter(call, name));
  json::object body = ProjectJson(call->scope, name);
  co_return co_await call->Reply(std::move(body));
}

Task<> CreateProject(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(std::string name, ParseProjectName(text));
  SB_CO_TRYV(call->UseProject(name));
  json::object body = ProjectJson(call->scope, name);
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
