#include "egress/egress.h"

#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <list>

#include "egress/connection.h"

namespace sandbar::egress {

namespace {

constexpr size_t kFdsPerConnection = 6;  // two sockets, two pipes
constexpr size_t kReservedFds = 512;     // at least, for the API, machines, files
constexpr size_t kMostFds = size_t{1} << 20;
constexpr size_t kFewConnections = 64;
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::milliseconds kSweepAtMost{30000};

Result<Endpoint> KernelOriginalDestination(int fd) {
  sockaddr_storage ss{};
  socklen_t len = sizeof(ss);
  if (::getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, &ss, &len) != 0) return FailErrno("SO_ORIGINAL_DST");
  return FromSockaddr(ss);
}

class EgressImpl final : public Egress {
 public:
  EgressImpl(asio::any_io_executor ex, Fd listener, Fd dns, PolicyRef policy, const EgressConfig* config,
             Interceptor* interceptor, OriginalDestination original)
      : original_(std::move(original)),
        state_{.config = config,
               .policy = std::move(policy),
               .interceptor = interceptor,
               .bandwidth = Bandwidth(config->bytes_per_second)},
        dns_(ex, &state_),
        group_(ex) {
    state_.changed = std::make_unique<Event>(ex);
    group_.Spawn(UntilCancelled(Accept(std::move(listener))));
    group_.Spawn(UntilCancelled(dns_.ServeUdp(std::move(dns))));
    group_.Spawn(UntilCancelled(Sweep()));
  }

  void SetPolicy(PolicyRef policy) override {
    auto mine = std::ranges::find(state_.also, policy);
    state_.also.erase(state_.also.begin(), mine == state_.also.end() ? mine : mine + 1);
    state_.policy = std::move(policy);
    CutForbidden(*state_.policy);
    Changed();
  }
  void Tighten(PolicyRef next) override {
    state_.also.push_back(std::move(next));
    CutForbidden(*state_.also.back());
    Changed();
  }
  void Relax(const PolicyRef& next) override {
    std::erase(state_.also, next);
    Changed();
  }
  void DropEarlier(const PolicyRef& next) override {
    auto mine = std::ranges::find(state_.also, next);
    if (mine != state_.also.end()) state_.also.erase(state_.also.begin(), mine);
    Changed();
  }
  void FailChange(std::string reason) override {
    state_.failed_change = std::move(reason);
    state_.changed->Notify();
  }
  PolicyRef policy() const override { return state_.policy; }
  EgressCounters counters() const override { return state_.counters; }
  std::vector<Denial> denials() const override { return {state_.denials.begin(), state_.denials.end()}; }
  std::vector<Attempt> attempts() const override { return state_.attempts; }

  asio::awaitable<void> Close() override {
    for (EgressConnection* c : connections_) c->Cut();
    co_await group_.Close();
    co_await dns_.Close();
  }

 private:
  Task<> Accept(Fd fd);
  Task<> Serve(std::unique_ptr<EgressConnection> connection);
  Task<> Sweep();
  bool HasRoom();
  void CutForbidden(const CompiledPolicy& policy) {
    state_.same_rules.clear();
    for (EgressConnection* c : connections_)
      if (!c->Survives(policy)) c->Cut();
    state_.same_rules.clear();
  }
  // Another change than the one that failed, if one did.
  void Changed() {
    state_.failed_change.clear();
    state_.changed->Notify();
  }

  OriginalDestination original_;
  EgressState state_;
  std::list<EgressConnection*> connections_;
  DnsRelay dns_;
  TaskGroup group_;
};

bool EgressImpl::HasRoom() {
  const EgressConfig& config = *state_.config;
  Denial denial{.kind = "tcp", .target = "*", .rule = std::string(kServerRule)};
  denial.hint = "close some, or the server's operator can raise the limits";
  if (state_.open >= config.max_connections || state_.half_open >= config.max_half_open) {
    denial.reason = "too many connections at once";
  } else if (config.budget && !config.budget->Take(state_.open)) {
    denial.reason = "too many connections of all sandboxes at once";
  } else {
    return true;
  }
  state_.Deny(std::move(denial));
  return false;
}

Task<> EgressImpl::Accept(Fd fd) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(Stream listener, MakeStream(ex, std::move(fd)));
  for (;;) {
    Fd conn(::accept4(listener.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!conn && errno == EAGAIN) {
      auto [ec] = co_await listener.async_wait(Stream::wait_read, kToken);
      if (ec) co_return std::unexpected(FromAsio(ec, "accept"));
      continue;
    }
    if (!conn) {
      if (errno == EINVAL || errno == EBADF || errno == ENOTSOCK) co_return FailErrno("accept");
      // Out of fds or memory, or a connection that died while queued: the listener itself is fine.
      auto slept = co_await Sleep(kAcceptPause);
      if (!slept) co_return slept;
      continue;
    }
    auto guest = MakeStream(ex, std::move(conn));
    if (!guest) continue;
    if (HasRoom()) {
      // Made here, not in the task: the charge must be on the books before the next accept.
      auto connection = std::make_unique<EgressConnection>(*std::move(guest), &state_, &dns_);
      group_.Spawn(UntilCancelled(Serve(std::move(connection))));
    } else {
      ResetOnClose(*guest);
      guest->close();
    }
    // A flood of connects must not keep the loop from everything else.
    auto turn = co_await Yield();
    if (!turn) co_return turn;
  }
}

Task<> EgressImpl::Serve(std::unique_ptr<EgressConnection> connection) {
  auto place = connections_.insert(connections_.end(), connection.get());
  // Also when the task is unwound: Asio throws at an await in a task that was cancelled before.
  auto erase = [this, place](void*) { connections_.erase(place); };
  std::unique_ptr<void, decltype(erase)> listed(this, erase);
  auto target = original_(connection->guest_fd());
  auto ended = co_await connection->Run(std::move(target));
  co_return ended;
}

Task<> EgressImpl::Sweep() {
  auto limit = state_.config->idle_timeout;
  std::chrono::milliseconds every = std::clamp(limit / 4, std::chrono::milliseconds{1}, kSweepAtMost);
  for (;;) {
    auto slept = co_await Sleep(every);
    if (!slept) co_return slept;
    state_.pipes.Trim();
    auto oldest = std::chrono::steady_clock::now() - limit;
    for (EgressConnection* c : connections_)
      if (c->IdleSince(oldest)) c->Cut();
  }
}

}  // namespace

bool ConnectionBudget::Take(size_t held) {
  bool scarce = used_ >= limit_ - limit_ / 4;
  if (used_ >= limit_ || (scarce && held >= kFewConnections)) return false;
  ++used_;
  return true;
}

std::shared_ptr<ConnectionBudget> BudgetFromFdLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 1024;
  size_t fds = std::min<size_t>(limit.rlim_cur, kMostFds);
  size_t spare = fds - std::min(fds, std::max(fds / 4, kReservedFds));
  return std::make_shared<ConnectionBudget>(std::max<size_t>(spare / kFdsPerConnection, kFewConnections));
}

std::unique_ptr<Egress> MakeEgress(asio::any_io_executor ex, Fd tcp_listener, Fd dns, PolicyRef policy,
                                   const EgressConfig* config, Interceptor* interceptor, OriginalDestination original) {
  if (!original) original = KernelOriginalDestination;
  return std::make_unique<EgressImpl>(std::move(ex), std::move(tcp_listener), std::move(dns), std::move(policy), config,
                                      interceptor, std::move(original));
}

}  // namespace sandbar::egress
