// The network of a live session: its policy on record and in force, and the CA that a policy with rules needs.
#include "base/ids.h"
#include "base/log.h"
#include "sandbox/network.h"
#include "sandbox/session.h"

namespace sandbar::sandbox {

net::PolicyRef Session::RecordedPolicy() const {
  if (!row_.network) return core_->config.default_network_mode == "allow-all" ? net::AllowAll() : net::DenyAll();
  auto policy = OpenPolicy(core_->vault, *row_.network, OwnerOf(row_));
  if (policy) return *std::move(policy);
  log::Error("session {}: its network policy cannot be read, nothing is allowed until it is set again: {}", row_.id,
             policy.error().message);
  return net::DenyAll();
}

net::Denial Session::DroppedPackets(uint64_t count) {
  if (count != dropped_packets_) dropped_at_ = NowMs();
  dropped_packets_ = count;
  net::Denial denial;
  denial.at_ms = dropped_at_;
  denial.kind = "packets";
  denial.target = "UDP, ICMP, IPv6";
  denial.rule = net::kServerRule;
  denial.reason =
      "only TCP and DNS leave a sandbox, over IPv4; other packets (UDP such as QUIC, ICMP, IPv6) are dropped";
  denial.hint = "no policy allows them; use TCP (HTTP/1.1 or HTTP/2 instead of HTTP/3)";
  denial.count = count;
  return denial;
}

Task<> Session::TrustCa(net::PolicyRef policy) {
  if (!policy->HasRules()) co_return Result<>{};
  auto link = live_->link();
  if (!link) co_return Fail(Code::kUnavailable, "the sandbox is reconnecting; try again");
  std::string pem = live_->CaCertificate(*policy);
  if (pem.empty()) co_return Fail(Code::kInternal, "the proxy has no CA");
  auto install = InstallCa(std::move(link), std::move(pem));
  auto installed = co_await WithTimeout(std::move(install), core_->config.agent_timeout);
  if (!installed) co_return std::unexpected(std::move(installed).error().Context("the proxy's CA"));
  co_return Result<>{};
}

Task<> Session::TrustCaAgain() {
  auto trusted = co_await TrustCa(policy_);
  if (!trusted) log::Warn("session {}: {}", row_.id, trusted.error().message);
  co_return Result<>{};
}

Task<> Session::SetNetwork(net::PolicyRef policy) {
  SB_CO_TRYV(Usable());
  // What only closes takes effect before it is on record, what may open something after.
  const bool closes = OnlyCloses(*policy, *policy_);
  if (closes) live_->egress().SetPolicy(policy);
  // A machine that spoils its own trust store must not be able to keep its old policy by that.
  auto trusted = co_await TrustCa(policy);
  if (!trusted) log::Warn("session {}: {}", row_.id, trusted.error().message);
  auto row_before = row_.network;
  row_.network = SealPolicy(core_->vault, policy->policy(), OwnerOf(row_));
  auto saved = co_await Save();
  if (!saved) row_.network = std::move(row_before);
  SB_CO_TRYV(Usable());
  if (saved) policy_ = std::move(policy);
  live_->egress().SetPolicy(policy_);
  if (!saved) co_return std::unexpected(std::move(saved).error());
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
