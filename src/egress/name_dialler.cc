#include "egress/name_dialler.h"

#include <algorithm>
#include <optional>

#include "egress/resolver.h"
#include "wire/dns.h"

namespace sandbar::egress {

namespace {

constexpr size_t kMaxAddresses = 16;

Task<std::vector<IpAddress>> Ask(OperatorEndpoint upstream, std::string wire_name, uint16_t type,
                                 std::chrono::milliseconds timeout) {
  wire::DnsQuery query;
  query.name = std::move(wire_name);
  query.type = type;
  query.edns = true;
  query.udp_size = wire::kDnsEdnsUdp;
  auto reply = co_await AskResolver(upstream, query, timeout);
  if (!reply && reply.error().code == Code::kCancelled) co_return std::unexpected(std::move(reply).error());
  if (!reply) co_return Fail(Code::kUnavailable, "the resolver did not answer: " + reply.error().message);
  auto head = wire::ParseDnsReply(*reply, query);
  if (head && head->rcode == wire::DnsRcode::kNxDomain) co_return Fail(Code::kNotFound, "no such name");
  if (!head || head->rcode != wire::DnsRcode::kNoError) {
    co_return Fail(Code::kUnavailable, "the resolver failed for this name");
  }
  std::vector<IpAddress> out;
  for (const std::string& record : wire::DnsAddresses(*reply, query, kMaxAddresses))
    if (auto address = FromRaw(record)) out.push_back(*address);
  co_return out;
}

bool IsOwn(std::string_view name, const EgressConfig& config) {
  return std::ranges::any_of(config.own_names,
                             [&](const std::string& own) { return name == own || name.ends_with("." + own); });
}

// Why the policy or the operator's rules keep this address from being dialled; nothing when they let it through.
std::optional<Error> Forbidden(std::string_view name, const IpAddress& address, const CompiledPolicy* policy,
                               const EgressConfig& config) {
  if (policy != nullptr && policy->DecideAddress(address) == AddressDecision::kDenied) {
    return AddressDeniedByPolicy();
  }
  std::string why = AddressDenied(address.bytes, config);
  // Behind address translation it does not look like this host's.
  if (why.empty() && IsOwn(name, config) && !OperatorAllows(address.bytes, config)) why = "this server's own name";
  if (why.empty()) return std::nullopt;
  return Error{Code::kForbidden, "address not allowed: " + why};
}

}  // namespace

Error AddressDeniedByPolicy() {
  Error error{Code::kForbidden, "address not allowed: subnets.deny"};
  error.cause = Cause::kNetworkPolicy;
  return error;
}

Task<std::vector<IpAddress>> ResolveName(std::string name, const EgressConfig* config) {
  auto upstream = OperatorResolver(*config);
  if (!upstream) co_return Fail(Code::kUnavailable, "the server has no resolver configured");
  SB_CO_TRY(std::string wire_name, wire::DnsNameFromText(name));
  auto found = co_await Ask(*upstream, wire_name, wire::kDnsTypeA, config->dns_timeout);
  if (!found || !found->empty()) co_return found;
  found = co_await Ask(*upstream, wire_name, wire::kDnsTypeAaaa, config->dns_timeout);
  if (found && found->empty()) co_return Fail(Code::kNotFound, "the name has no address");
  co_return found;
}

Task<Stream> DialName(std::string name, uint16_t port, PolicyRef policy, const EgressConfig* config) {
  auto addresses = co_await ResolveName(name, config);
  if (!addresses) co_return std::unexpected(std::move(addresses).error().Context(name));
  auto deadline = std::chrono::steady_clock::now() + config->connect_timeout;
  Result<Stream> dialled = Fail(Code::kForbidden, "");
  std::optional<Error> why;  // why the first address that may not be dialled may not
  for (size_t i = 0; i < addresses->size(); ++i) {
    const IpAddress& address = (*addresses)[i];
    if (auto forbidden = Forbidden(name, address, policy.get(), *config)) {
      if (!why) why = (*std::move(forbidden)).Context(name + " resolves to " + ToString(address));
      continue;
    }
    // An address that swallows packets leaves its share of the time to the others.
    auto share = (deadline - std::chrono::steady_clock::now()) / static_cast<int64_t>(addresses->size() - i);
    if (share <= share.zero()) break;
    Endpoint target{address, port};
    auto dialling = GuardedConnect(target, config);
    dialled = co_await WithTimeout(std::move(dialling), share);
    if (dialled || dialled.error().code == Code::kCancelled) co_return dialled;
  }
  if (!dialled.error().message.empty()) co_return std::unexpected(std::move(dialled).error().Context(name));
  if (why) co_return std::unexpected(*std::move(why));
  co_return dialled;
}

}  // namespace sandbar::egress
