// The native API's view of a session's network: what was tried and denied, a policy that would do, and what another one
// would change.
#include <boost/json.hpp>

#include "api/call.h"
#include "api/handlers.h"
#include "egress/policy_advice.h"
#include "egress/policy_json.h"
#include "wire/json_decode.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

struct TestBody {
  egress::PolicyBody policy;
};
BOOST_DESCRIBE_STRUCT(TestBody, (), (policy))

json::object DenialJson(const egress::Denial& d) {
  return {{"at", d.at_ms},      {"kind", d.kind}, {"target", d.target}, {"host", d.host},  {"port", d.port},
          {"reason", d.reason}, {"rule", d.rule}, {"hint", d.hint},     {"count", d.count}};
}

json::object AttemptJson(const egress::Attempt& a) {
  return {{"firstAt", a.first_ms}, {"lastAt", a.last_ms},  {"kind", a.kind},
          {"host", a.host},        {"address", a.address}, {"port", a.port},
          {"allowed", a.allowed},  {"reason", a.reason},   {"count", a.count}};
}

template <class T>
json::array Rows(const std::vector<T>& items, json::object (*row)(const T&)) {
  json::array out;
  for (const T& item : items) out.emplace_back(row(item));
  return out;
}

json::object ChangeJson(const egress::AttemptChange& c) {
  json::object out = AttemptJson(c.attempt);
  out["allowedNow"] = c.allowed_now;
  out["allowedThen"] = c.allowed_then;
  out["ruleNow"] = c.rule_now;
  out["ruleThen"] = c.rule_then;
  return out;
}

}  // namespace

Task<> NativeNetworkLog(Call* call) {
  std::string id = call->Param("session");
  auto view = co_await call->domain->sessions->Network(call->scope, std::move(id));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body{{"networkPolicy", egress::AnswerJson(view->policy->policy())},
                    {"denials", Rows(view->denials, DenialJson)},
                    {"attempts", Rows(view->attempts, AttemptJson)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeNetworkSuggest(Call* call) {
  std::string id = call->Param("session");
  auto view = co_await call->domain->sessions->Network(call->scope, std::move(id));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body{{"networkPolicy", egress::PolicyJson(egress::Suggest(view->attempts))},
                    {"attempts", view->attempts.size()}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeNetworkTest(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(TestBody wanted, wire::DecodeJson<TestBody>(text, {.bytes = kMaxJsonBody}));
  SB_CO_TRY(egress::PolicyRef candidate, egress::Compile(std::move(wanted.policy.policy)));
  std::string id = call->Param("session");
  auto view = co_await call->domain->sessions->Network(call->scope, std::move(id));
  if (!view) co_return std::unexpected(std::move(view).error());
  auto changes = egress::Replay(view->attempts, *view->policy, *candidate);
  json::object body{{"attempts", view->attempts.size()}, {"changes", Rows(changes, ChangeJson)}};
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
