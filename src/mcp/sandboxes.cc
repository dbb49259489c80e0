// Tools about the sandbox itself: ports, and for operators snapshots, forks and the network policy.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "egress/policy_json.h"
#include "mcp/open.h"
#include "mcp/output.h"
#include "wire/json_decode.h"
#include "wire/ndjson.h"

namespace sandbar::mcp {
namespace {

struct ExposeArgs {
  int port = 0;
  void Check(wire::JsonIssues& issues) const { issues.Range("port", port, 1024, 65535); }
};
BOOST_DESCRIBE_STRUCT(ExposeArgs, (), (port))

struct NoArgs {};
BOOST_DESCRIBE_STRUCT(NoArgs, (), ())

struct ForkArgs {
  std::optional<std::string> name;
};
BOOST_DESCRIBE_STRUCT(ForkArgs, (), (name))

// The two plain modes may be written as a word.
struct PolicyArg {
  egress::PolicyBody body;
  void ReadJson(wire::JsonDecoder& decoder, const json::value& value) {
    if (value.is_string()) {
      json::object mode{{"mode", value}};
      body.ReadJson(decoder, mode);
    } else {
      body.ReadJson(decoder, value);
    }
  }
};

struct NetworkArgs {
  std::optional<PolicyArg> policy;
};
BOOST_DESCRIBE_STRUCT(NetworkArgs, (), (policy))

std::string Denials(const sandbox::NetworkView& view) {
  std::string text;
  for (const egress::Denial& d : view.denials) text += fmt::format("denied: {} ({})\n", d.target, d.reason);
  return CutText(text, kTextCap / 2);
}

}  // namespace

Task<ToolResult> ExposePort(ToolCall* call) {
  SB_CO_TRY(ExposeArgs args, wire::DecodeValue<ExposeArgs>(call->arguments));
  SB_CO_TRY(Opened opened, co_await OpenSandbox(call));
  sandbox::UpdateSpec change;
  change.ports.emplace();
  for (const store::PortRoute& route : opened.sandbox.routes) change.ports->push_back(route.port);
  if (std::ranges::find(*change.ports, args.port) == change.ports->end()) change.ports->push_back(args.port);
  std::string name = call->sandbox;
  auto updated =
      co_await call->connection->domain->sandboxes->Update(call->connection->scope, std::move(name), std::move(change));
  if (!updated) co_return std::unexpected(std::move(updated).error());
  auto route = std::ranges::find(updated->routes, args.port, &store::PortRoute::port);
  if (route == updated->routes.end()) co_return Fail(Code::kInternal, "the port has no route");
  co_return TextResult(fmt::format("port {} is published at {}\nA server has to listen on it (any address).", args.port,
                                   call->connection->preview_url(*route)));
}

Task<ToolResult> TakeSnapshot(ToolCall* call) {
  SB_CO_TRYV(wire::DecodeValue<NoArgs>(call->arguments));
  SB_CO_TRY(Opened opened, co_await OpenSandbox(call));
  std::string session = opened.session.id;
  auto taken =
      co_await call->connection->domain->snapshots->Take(call->connection->scope, std::move(session), std::nullopt);
  if (!taken) co_return std::unexpected(std::move(taken).error());
  co_return TextResult(fmt::format("snapshot {} ({} bytes); running commands have ended, the next call goes on from it",
                                   taken->snapshot.id, taken->snapshot.size_bytes));
}

Task<ToolResult> ForkSandbox(ToolCall* call) {
  SB_CO_TRY(ForkArgs args, wire::DecodeValue<ForkArgs>(call->arguments));
  SB_CO_TRY(Opened opened, co_await FindSandbox(call));
  sandbox::ForkSpec spec;
  spec.name = args.name;
  spec.changes.isolation = call->connection->make.isolation;
  std::string name = call->sandbox;
  auto view =
      co_await call->connection->domain->sandboxes->Fork(call->connection->scope, std::move(name), std::move(spec));
  if (!view) co_return std::unexpected(std::move(view).error());
  const bool bare = opened.sandbox.current_snapshot.empty();
  co_return TextResult(fmt::format("sandbox {} runs{}", view->sandbox.name,
                                   bare ? " from the image alone: there is no snapshot yet (use snapshot first)" : ""));
}

Task<ToolResult> SetNetwork(ToolCall* call) {
  SB_CO_TRY(NetworkArgs args, wire::DecodeValue<NetworkArgs>(call->arguments));
  if (args.policy) SB_CO_TRYV(sandbox::CheckRole(call->connection->scope.caller, sandbox::KeyRole::kOperator));
  SB_CO_TRY(Opened opened, co_await OpenSandbox(call));
  std::string session = opened.session.id;
  if (args.policy) {
    // That of the session that runs, at once; and the sandbox's own, for its next session.
    egress::NetworkPolicy policy = args.policy->body.policy;
    auto set =
        co_await call->connection->domain->sessions->SetNetwork(call->connection->scope, session, std::move(policy));
    // One that the machine only half took is on record for the session; it counts for the next one too.
    if (!set && set.error().code != Code::kUnavailable) co_return std::unexpected(std::move(set).error());
    sandbox::UpdateSpec change;
    change.network = args.policy->body.policy;
    std::string name = call->sandbox;
    auto updated = co_await call->connection->domain->sandboxes->Update(call->connection->scope, std::move(name),
                                                                        std::move(change));
    if (!updated) co_return std::unexpected(std::move(updated).error());
    if (!set) co_return std::unexpected(std::move(set).error());
  }
  auto view = co_await call->connection->domain->sessions->Network(call->connection->scope, std::move(session));
  if (!view) co_return std::unexpected(std::move(view).error());
  co_return TextResult("network policy: " + wire::ToAsciiJson(egress::AnswerJson(view->policy->policy())) + "\n" +
                       Denials(*view));
}

}  // namespace sandbar::mcp
