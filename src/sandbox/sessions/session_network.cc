#include "sandbox/sessions/session_network.h"

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/seals.h"
#include "sandbox/sessions/network.h"

namespace sandbar::sandbox {

void SessionNetwork::Load() {
  if (!state_->row.network) {
    policy_ = state_->core->config.default_network_mode == "allow-all" ? egress::AllowAll() : egress::DenyAll();
    return;
  }
  auto policy = OpenPolicy(state_->core->vault, *state_->row.network, SealOwner(state_->row));
  if (policy) {
    policy_ = *std::move(policy);
    return;
  }
  log::Error("session {}: its network policy cannot be used, nothing is allowed until it is set again: {}",
             state_->row.id, policy.error().message);
  state_->tasks.Spawn(TellUnusable(policy.error().message));
  policy_ = egress::DenyAll();
}

Task<> SessionNetwork::TellUnusable(std::string why) {
  auto notice = PolicyUnusable(store::KeyOf(state_->row), why);
  auto add = [notice = std::move(notice)](store::Journal& journal) { return journal.AddNotice(notice); };
  co_return co_await state_->core->Journal(std::move(add));
}

egress::Denial SessionNetwork::DroppedPackets(uint64_t count) {
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

Task<> SessionNetwork::TrustCa(egress::PolicyRef policy) {
  if (!policy->HasRules()) co_return Result<>{};
  auto link = state_->connected->link();
  if (!link) co_return Fail(Code::kUnavailable, "the sandbox is reconnecting; try again");
  std::string pem = state_->connected->CaCertificate(*policy);
  if (pem.empty()) co_return Fail(Code::kInternal, "the proxy has no CA");
  auto install = InstallCa(std::move(link), std::move(pem));
  auto installed = co_await WithTimeout(std::move(install), state_->core->config.agent_timeout);
  if (!installed) co_return std::unexpected(std::move(installed).error().Context("the proxy's CA"));
  co_return Result<>{};
}

void SessionNetwork::TrustCaAgain() {
  state_->tasks.Spawn(TrustRecorded());
}

Task<> SessionNetwork::TrustRecorded() {
  auto trusted = co_await TrustCa(policy_);
  if (!trusted) log::Warn("session {}: {}", state_->row.id, trusted.error().message);
  co_return Result<>{};
}

void SessionNetwork::Apply() {
  state_->connected->egress().SetPolicy(policy_);
}

// Ends when a later call sets another policy.
Task<> SessionNetwork::AwaitOtherPolicy(uint64_t change) {
  while (change == changes_) {
    auto woken = co_await changed_.Wait();
    if (!woken) co_return woken;
  }
  co_return Result<>{};
}

Task<> SessionNetwork::Set(egress::PolicyRef policy) {
  SB_CO_TRYV(state_->Usable());
  const uint64_t change = ++changes_;
  changed_.Notify();
  // What the new policy denies is denied from here on. The rest takes time: the record, and the CA in a machine that
  // may be hostile and delay it.
  state_->connected->egress().Tighten(policy);
  auto row_before = state_->row.network;
  state_->row.network = SealPolicy(state_->core->vault, policy->policy(), SealOwner(state_->row));
  auto saved = co_await state_->Save();
  SB_CO_TRYV(state_->Usable());
  const bool newest = change == changes_;
  if (!saved) {
    state_->connected->egress().Relax(policy);
    // A change before this one may have stopped waiting for its CA because of this one.
    if (newest) {
      state_->row.network = std::move(row_before);
      state_->connected->egress().SetPolicy(policy_);
      TrustCaAgain();
    }
    co_return std::unexpected(std::move(saved).error());
  }
  // A later call has replaced it already.
  if (!newest) co_return Result<>{};
  policy_ = policy;
  state_->connected->egress().DropEarlier(policy);
  using namespace asio::experimental::awaitable_operators;
  auto install = TrustCa(policy);
  auto replaced = AwaitOtherPolicy(change);
  auto first = co_await (std::move(install) || std::move(replaced));
  SB_CO_TRYV(state_->Usable());
  if (change != changes_) co_return Result<>{};
  Result<> trusted = first.index() == 0 ? std::get<0>(std::move(first)) : std::get<1>(std::move(first));
  if (!trusted) {
    state_->connected->egress().FailChange(trusted.error().message);
    log::Warn("session {}: {}", state_->row.id, trusted.error().message);
    co_return Fail(Code::kUnavailable,
                   "what the new network policy denies is denied, and it is on record, but what only it allows is not "
                   "open: " +
                       trusted.error().message + "; set the policy again");
  }
  state_->connected->egress().SetPolicy(policy_);
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
