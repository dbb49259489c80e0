#include "egress/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "egress/denial_answer.h"
#include "egress/intercept.h"
#include "egress/name_dialler.h"
#include "egress/stream_io.h"

namespace sandbar::egress {

namespace {

constexpr size_t kMaxDrain = 256 << 10;  // bytes thrown away after the answer
// Remembered per intercepted connection. Clients use a connection for one or two; and a change of policy decides about
// them all.
constexpr size_t kMaxHosts = 8;
constexpr size_t kPeek = 4096;
constexpr std::chrono::milliseconds kDrainTime{1000};
constexpr uint16_t kDnsPort = 53;

std::optional<IpAddress> PeerOf(Stream& stream) {
  sockaddr_storage ss{};
  socklen_t len = sizeof(ss);
  if (::getpeername(stream.native_handle(), reinterpret_cast<sockaddr*>(&ss), &len) != 0) return std::nullopt;
  auto peer = FromSockaddr(ss);
  if (!peer) return std::nullopt;
  return peer->address;
}

}  // namespace

EgressConnection::EgressConnection(Stream guest, EgressState* state, DnsRelay* dns)
    : guest_(std::move(guest)), state_(state), dns_(dns), cut_(guest_.get_executor()) {
  relay_.pipes = &state->pipes;
  relay_.bandwidth = &state->bandwidth;
  int on = 1;
  ::setsockopt(guest_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ++state_->open;
  ++state_->half_open;
  ++state_->counters.connections;
}

EgressConnection::~EgressConnection() {
  NoLongerHalfOpen();
  --state_->open;
  if (state_->config->budget) state_->config->budget->Give();
}

void EgressConnection::NoLongerHalfOpen() {
  if (half_open_) --state_->half_open;
  half_open_ = false;
}

void EgressConnection::Cut() {
  relay_.cut = true;
  boost::system::error_code ignored;
  ResetOnClose(guest_);
  guest_.cancel(ignored);
  cut_.Notify();
  if (!upstream_) return;
  ResetOnClose(*upstream_);
  upstream_->cancel(ignored);
}

// The cut may come before this has started to wait.
Task<> EgressConnection::AwaitCut() {
  while (!relay_.cut) {
    auto woken = co_await cut_.Wait();
    if (!woken) co_return woken;
  }
  co_return Result<>{};
}

template <class T>
Task<T> EgressConnection::UnlessCut(Task<T> task) {
  using namespace asio::experimental::awaitable_operators;
  if (relay_.cut) co_return Fail(Code::kClosed, "cut by policy");
  auto cut = AwaitCut();
  auto first = co_await (std::move(task) || std::move(cut));
  if (first.index() == 1) co_return Fail(Code::kClosed, "cut by policy");
  co_return std::get<0>(std::move(first));
}

bool EgressConnection::IdleSince(std::chrono::steady_clock::time_point when) const {
  return carrying_ && relay_.last_activity < when;
}

bool EgressConnection::SameTreatment(const CompiledPolicy& now, const std::string& host) const {
  const DomainEntry* before = policy_->FindName(host);
  if (before == nullptr) return false;
  if (now.mode() == EgressMode::kAllowAll) return before->rules.empty();
  const DomainEntry* after = now.mode() == EgressMode::kCustom ? now.FindName(host) : nullptr;
  if (after == nullptr) return false;
  // Rules can be long, and many connections can have the same ones.
  auto known = state_->same_rules.find({before, after});
  if (known != state_->same_rules.end()) return known->second;
  const bool same = after->rules == before->rules;
  state_->same_rules.emplace(std::pair(before, after), same);
  return same;
}

bool EgressConnection::Survives(const CompiledPolicy& now) const {
  if (!granted_) return true;
  if (now.mode() == EgressMode::kDenyAll) return false;
  // Nothing was read under allow-all, so no name of it can be relied on.
  bool by_address = granted_->kind == ConnectionPlan::Kind::kDialAddress || policy_->mode() == EgressMode::kAllowAll;
  switch (granted_->kind) {
    case ConnectionPlan::Kind::kDialAddress:
      return DecideAddress(now, target_.address).allowed;
    case ConnectionPlan::Kind::kDialName:
    case ConnectionPlan::Kind::kDialOpened: {
      if (now.mode() == EgressMode::kAllowAll) return true;
      // An address that is being dialled was decided by the lists of then.
      if (!peer_ && now.policy().deny_cidrs != policy_->policy().deny_cidrs) return false;
      AddressDecision at_peer = peer_ ? now.DecideAddress(*peer_) : AddressDecision::kNoRule;
      if (by_address || granted_->kind == ConnectionPlan::Kind::kDialOpened)
        return at_peer == AddressDecision::kAllowed;
      const DomainEntry* entry = now.FindName(granted_->name);
      return at_peer != AddressDecision::kDenied && entry != nullptr && entry->rules.empty();
    }
    case ConnectionPlan::Kind::kIntercept:
      // Its requests are dialled by the list that it was let in with.
      if (now.mode() == EgressMode::kCustom && now.policy().deny_cidrs != policy_->policy().deny_cidrs) return false;
      return !too_many_hosts_ && std::ranges::all_of(hosts_, [&](const auto& h) { return SameTreatment(now, h); });
    default:
      return false;
  }
}

Task<> EgressConnection::Run(Result<Endpoint> target) {
  if (!target) {
    // Not redirected: the guest talks to the listener itself. Nothing of what it says is looked at.
    ResetOnClose(guest_);
    co_return std::unexpected(std::move(target).error());
  }
  target_ = *target;
  static const IpAddress kResolver = *ParseAddress(kGuestResolver);
  if (target_ == Endpoint{kResolver, kDnsPort}) {
    auto served = co_await dns_->ServeTcp(&guest_);
    co_return served;
  }
  target_name_ = state_->names.NameOf(target_.address);
  auto served = co_await Serve();
  if (!served) ResetOnClose(guest_);
  co_return served;
}

Task<ConnectionPlan> EgressConnection::MakePlan() {
  for (;;) {
    policy_ = state_->policy;
    Approach approach{.target = target_, .name = target_name_, .first_bytes = &first_bytes_};
    ConnectionPlan plan = PlanUnderAll(*policy_, state_->also, approach, *state_->config);
    if (plan.kind == ConnectionPlan::Kind::kRead) {
      auto read = co_await ReadFirstBytes(&guest_, &first_bytes_, state_->config->first_bytes_timeout);
      if (!read) co_return std::unexpected(std::move(read).error());
      continue;
    }
    if (plan.kind != ConnectionPlan::Kind::kWait) co_return plan;
    if (!state_->failed_change.empty()) {
      plan.kind = ConnectionPlan::Kind::kDeny;
      plan.decision.rule = kServerRule;
      plan.decision.reason = "the network policy was not changed to its end: " + state_->failed_change;
      plan.decision.hint = "set the sandbox's networkPolicy again";
      co_return plan;
    }
    auto changed = co_await state_->changed->Wait();
    if (!changed) co_return std::unexpected(std::move(changed).error());
  }
}

Task<> EgressConnection::Serve() {
  auto decided = co_await MakePlan();
  if (!decided) co_return std::unexpected(std::move(decided).error());
  ConnectionPlan plan = *std::move(decided);
  if (plan.kind == ConnectionPlan::Kind::kDeny) {
    auto refused = co_await Refuse(std::move(plan));
    co_return refused;
  }
  granted_ = std::move(plan);
  if (granted_->kind == ConnectionPlan::Kind::kIntercept) {
    auto served = co_await Intercept();
    co_return served;
  }
  auto dialling = Dial();
  auto dialled = co_await UnlessCut(std::move(dialling));
  if (!dialled) {
    auto failed = co_await DialFailed(std::move(dialled).error());
    co_return failed;
  }
  upstream_.emplace(*std::move(dialled));
  peer_ = PeerOf(*upstream_);
  // The addresses behind a name are known only now.
  const bool survives = state_->AllPolicies([this](const CompiledPolicy& now) { return Survives(now); });
  if (relay_.cut || !survives) co_return Fail(Code::kClosed, "cut by policy");
  auto carried = co_await Carry();
  co_return carried;
}

Task<Stream> EgressConnection::Dial() {
  Result<Stream> dialled = Fail(Code::kInternal, "not dialled");
  switch (granted_->kind) {
    case ConnectionPlan::Kind::kDialAddress:
      dialled = co_await GuardedConnect(target_, state_->config);
      break;
    case ConnectionPlan::Kind::kDialOpened:
      dialled = co_await DialOpened();
      break;
    default:
      dialled = co_await DialName(granted_->name, target_.port, policy_, state_->config);
      break;
  }
  if (!dialled || !first_bytes_.postgres) co_return dialled;
  auto starting = StartPostgres(&*dialled);
  auto started = co_await WithTimeout(std::move(starting), state_->config->connect_timeout);
  if (!started) co_return std::unexpected(std::move(started).error());
  co_return dialled;
}

Task<Stream> EgressConnection::DialOpened() {
  auto addresses = co_await ResolveName(granted_->name, state_->config);
  if (!addresses) co_return std::unexpected(std::move(addresses).error());
  for (const IpAddress& address : *addresses) {
    if (policy_->DecideAddress(address) != AddressDecision::kAllowed) continue;
    Endpoint target{address, target_.port};
    auto dialled = co_await GuardedConnect(target, state_->config);
    co_return dialled;
  }
  co_return Fail(Code::kForbidden, "not TLS or HTTP, and no subnet of the network policy contains its address");
}

Task<> EgressConnection::StartPostgres(Stream* upstream) {
  std::string request(kPostgresSslRequest);
  auto written = co_await WriteAll(upstream, std::move(request));
  if (!written) co_return written;
  auto answer = co_await ReadExactly(upstream, 1);
  if (!answer) co_return std::unexpected(std::move(answer).error());
  if (*answer != "S") co_return Fail(Code::kUnavailable, "the PostgreSQL server does not offer TLS");
  co_return Result<>{};
}

Task<> EgressConnection::DialFailed(Error error) {
  if (error.code != Code::kForbidden) {
    if (!relay_.cut) {
      Attempt attempt{
          .kind = std::string(KindName(first_bytes_.protocol)), .host = granted_->name, .port = target_.port};
      if (attempt.host.empty()) attempt.address = ToString(target_.address);
      attempt.allowed = true;
      attempt.reason = "could not connect: " + error.message;
      state_->Note(std::move(attempt));
    }
    co_return std::unexpected(std::move(error));
  }
  ConnectionPlan plan;
  plan.name = granted_->name;
  bool by_policy = granted_->kind == ConnectionPlan::Kind::kDialOpened || error.cause == Cause::kNetworkPolicy;
  plan.decision.rule = by_policy ? "subnets" : kServerRule;
  plan.decision.reason = error.message;
  if (by_policy) {
    plan.decision.hint = "change subnets of the sandbox's networkPolicy";
  } else if (plan.name.empty()) {
    plan.decision.hint = AddressHint(target_.address);
  } else {
    plan.decision.hint = "the server's operator can add the address to network.allow_addresses";
  }
  granted_.reset();
  auto refused = co_await Refuse(std::move(plan));
  co_return refused;
}

Task<> EgressConnection::Refuse(ConnectionPlan plan) {
  if (!first_bytes_.done) {
    auto read = co_await ReadProtocol(&guest_, &first_bytes_, state_->config->protocol_timeout);
    if (!read) co_return read;
  }
  Denial denial;
  denial.kind = KindName(first_bytes_.protocol);
  denial.host = !plan.name.empty() ? plan.name : target_name_;
  if (denial.host.empty()) denial.host = NameIn(first_bytes_);
  if (denial.host.empty()) denial.host = ToString(target_.address);
  bool named = denial.host != ToString(target_.address);
  denial.target = named ? denial.host + ":" + std::to_string(target_.port) : ToString(target_);
  denial.port = target_.port;
  denial.rule = std::move(plan.decision.rule);
  denial.reason = std::move(plan.decision.reason);
  denial.hint = std::move(plan.decision.hint);
  state_->Deny(denial);
  auto saying = SayWhy(&denial);
  auto said = co_await WithTimeout(std::move(saying), kDrainTime);
  co_return said;
}

Task<> EgressConnection::SayWhy(const Denial* denial) {
  std::string answer = DenialBytes(*denial, first_bytes_);
  if (answer.empty()) co_return Fail(Code::kForbidden, "no way to say it in this protocol");
  auto written = co_await WriteAll(&guest_, std::move(answer));
  if (!written) co_return written;
  ::shutdown(guest_.native_handle(), SHUT_WR);
  auto drained = co_await Drain();
  co_return drained;
}

// Closing with unread bytes in the buffer would send RST, and the client might lose the answer to it.
Task<> EgressConnection::Drain() {
  size_t drained = 0;
  while (drained < kMaxDrain) {
    auto piece = co_await ReadSome(&guest_, 4096);
    if (!piece) co_return std::unexpected(std::move(piece).error());
    if (piece->empty()) co_return Result<>{};
    drained += piece->size();
  }
  co_return Fail(Code::kTooLarge, "client goes on sending");
}

Task<> EgressConnection::Carry() {
  carrying_ = true;
  relay_.last_activity = std::chrono::steady_clock::now();
  NoLongerHalfOpen();
  if (granted_->kind != ConnectionPlan::Kind::kDialAddress) {
    NoteAllowed(std::string(KindName(first_bytes_.protocol)), granted_->name, {});
  }
  using namespace asio::experimental::awaitable_operators;
  auto out = CarryOut();
  auto in = CarryIn();
  co_await (std::move(out) && std::move(in));
  if (!noted_) NoteAllowed("tcp", state_->names.SeenName(target_.address), ToString(target_.address));
  co_return Result<>{};
}

Task<> EgressConnection::CarryOut() {
  std::string first_bytes = std::exchange(first_bytes_.bytes, {});
  state_->counters.egress_bytes += first_bytes.size();
  state_->bandwidth.Spend(first_bytes.size());
  auto sent = co_await WriteAll(&*upstream_, std::move(first_bytes));
  if (sent && !noted_) {
    auto [ec] = co_await guest_.async_wait(Stream::wait_read, kToken);
    if (!ec) NotePeeked();
  }
  if (sent) sent = co_await SpliceOneWay(&guest_, &*upstream_, &state_->counters.egress_bytes, &relay_);
  // One direction broke: the other cannot be whole either.
  if (!sent) Cut();
  co_return sent;
}

Task<> EgressConnection::CarryIn() {
  auto carried = co_await SpliceOneWay(&*upstream_, &guest_, &state_->counters.ingress_bytes, &relay_);
  if (!carried) Cut();
  co_return carried;
}

// Looks at what passes by without taking it, so that a policy can be suggested for what an open one let through.
void EgressConnection::NotePeeked() {
  std::array<char, kPeek> bytes;
  ssize_t n = ::recv(guest_.native_handle(), bytes.data(), bytes.size(), MSG_PEEK);
  if (n <= 0) return;
  FirstBytes seen;
  seen.bytes.assign(bytes.data(), static_cast<size_t>(n));
  seen.protocol = Classify(seen.bytes);
  std::string host = NameIn(seen);
  if (host.empty()) host = state_->names.SeenName(target_.address);
  NoteAllowed(std::string(KindName(seen.protocol)), std::move(host), ToString(target_.address));
}

void EgressConnection::NoteAllowed(std::string kind, std::string host, std::string address) {
  noted_ = true;
  Attempt attempt{.kind = std::move(kind), .host = std::move(host), .address = std::move(address)};
  attempt.port = target_.port;
  attempt.allowed = true;
  state_->Note(std::move(attempt));
}

void EgressConnection::OnHost(const std::string& host) {
  NoLongerHalfOpen();
  if (hosts_.size() < kMaxHosts) {
    if (hosts_.insert(host).second) NoteAllowed(granted_->name.empty() ? "http" : "tls", host, {});
  } else if (!hosts_.contains(host)) {
    too_many_hosts_ = true;  // any change of policy ends it
  }
  auto same = [&](const CompiledPolicy& now) {
    return &now == policy_.get() || (!too_many_hosts_ && SameTreatment(now, host));
  };
  state_->same_rules.clear();
  if (!state_->AllPolicies(same)) Cut();
  state_->same_rules.clear();
}

Task<> EgressConnection::Intercept() {
  if (state_->interceptor == nullptr) {
    ConnectionPlan plan;
    plan.name = granted_->name;
    plan.decision.rule = kServerRule;
    plan.decision.reason = "this server cannot read requests, so it cannot judge them";
    plan.decision.hint = "allow the address with subnets.allow";
    granted_.reset();
    auto refused = co_await Refuse(std::move(plan));
    co_return refused;
  }
  if (!granted_->name.empty()) hosts_.insert(granted_->name);
  InterceptJob job;
  job.guest = &guest_;
  job.first_bytes = std::exchange(first_bytes_.bytes, {});
  job.tls = first_bytes_.protocol == AppProtocol::kTls;
  job.target = target_;
  job.name = granted_->name;
  job.policy = policy_;
  job.state = state_;
  job.on_host = [this](const std::string& host) {
    OnHost(host);
    return !relay_.cut;
  };
  auto serving = state_->interceptor->Serve(std::move(job));
  auto served = co_await UnlessCut(std::move(serving));
  co_return served;
}

}  // namespace sandbar::egress
