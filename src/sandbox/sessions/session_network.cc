// The network of a live session: its policy on record and in force, and the CA that a policy with rules needs.
#include "base/ids.h"
#include "base/log.h"
#include "sandbox/sessions/network.h"
#include "sandbox/sessions/session.h"

namespace sandbar::sandbox {

egress::PolicyRef Session::RecordedPolicy() {
  if (!row_.network) return core_->config.default_network_mode == "allow-all" ? egress::AllowAll() : egress::DenyAll();
  auto policy = OpenPolicy(core_->vault, *row_.network, OwnerOf(row_));
  if (policy) return *std::move(policy);
  log::Error("session {}: its network policy cannot be used, nothing is allowed until it is set again: {}", row_.id,
             policy.error().message);
  tasks_.Spawn(TellPolicyUnusable(policy.error().message));
  return egress::DenyAll();
}

Task<> Session::TellPolicyUnusable(std::string why) {
  auto notice = PolicyUnusable(store::KeyOf(row_), why);
  auto add = [notice = std::move(notice)](store::Store& store) { return store.AddNotice(notice); };
  co_return co_await core_->Db(std::move(add));
}

egress::Denial Session::DroppedPackets(uint64_t count) {
  if (count != dropped_packets_) dropped_at_ = NowMs();
  dropped_packets_ = count;
  egress::Denial denial;
  denial.at_ms = dropped_at_;
  denial.kind = "packets";
  denial.target = "UDP, ICMP, IPv6";
  denial.rule = egress::kServerRule;
  denial.reason =
      "only TCP and DNS leave a sandbox, over IPv4; other packets (UDP such as QUIC, ICMP, IPv6) are dropped";
  denial.hint = "no policy allows them; use TCP (HTTP/1.1 or HTTP/2 instead of HTTP/3)";
  denial.count = count;
  return denial;
}

Task<> Session::TrustCa(egress::PolicyRef policy) {
  if (!policy->HasRules()) co_return Result<>{};
  auto link = connected_->link();
  if (!link) co_return Fail(Code::kUnavailable, "the sandbox is reconnecting; try again");
  std::string pem = connected_->CaCertificate(*policy);
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

// Ends when a later call sets another policy.
Task<> Session::AwaitOtherPolicy(uint64_t change) {
  while (change == policy_changes_) {
    auto woken = co_await policy_changed_.Wait();
    if (!woken) co_return woken;
  }
  co_return Result<>{};
}

Task<> Session::SetNetwork(egress::PolicyRef policy) {
  SB_CO_TRYV(Usable());
  const uint64_t change = ++policy_changes_;
  policy_changed_.Notify();
  // What the new policy denies is denied from here on. The rest takes time: the record, and the CA in a machine that
  // may be hostile and delay it.
  connected_->egress().Tighten(policy);
  auto row_before = row_.network;
  row_.network = SealPolicy(core_->vault, policy->policy(), OwnerOf(row_));
  auto saved = co_await Save();
  SB_CO_TRYV(Usable());
  const bool newest = change == policy_changes_;
  if (!saved) {
    connected_->egress().Relax(policy);
    // A change before this one may have stopped waiting for its CA because of this one.
    if (newest) {
      row_.network = std::move(row_before);
      connected_->egress().SetPolicy(policy_);
      tasks_.Spawn(TrustCaAgain());
    }
    co_return std::unexpected(std::move(saved).error());
  }
  // A later call has replaced it already.
  if (!newest) co_return Result<>{};
  policy_ = policy;
  connected_->egress().DropEarlier(policy);
  using namespace asio::experimental::awaitable_operators;
  auto install = TrustCa(policy);
  auto replaced = AwaitOtherPolicy(change);
  auto first = co_await (std::move(install) || std::move(replaced));
  SB_CO_TRYV(Usable());
  if (change != policy_changes_) co_return Result<>{};
  Result<> trusted = first.index() == 0 ? std::get<0>(std::move(first)) : std::get<1>(std::move(first));
  if (!trusted) {
    connected_->egress().FailChange(trusted.error().message);
    log::Warn("session {}: {}", row_.id, trusted.error().message);
    co_return Fail(Code::kUnavailable,
                   "what the new network policy denies is denied, and it is on record, but what only it allows is not "
                   "open: " +
                       trusted.error().message + "; set the policy again");
  }
  connected_->egress().SetPolicy(policy_);
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
