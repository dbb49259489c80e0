#include "egress/dns_relay.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "egress/resolver.h"

namespace sandbar::egress {

namespace {

constexpr int kQueriesPerConnection = 256;
constexpr std::chrono::seconds kTcpIdle{10};
constexpr uint32_t kMadeUpTtl = 30;
constexpr size_t kMaxRemembered = 16;  // addresses of one answer

// NXDOMAIN, not REFUSED: after REFUSED glibc asks everything again and then calls it a temporary failure, musl waits
// for its whole timeout; NXDOMAIN is final everywhere. The extended error says what really happened.
constexpr wire::DnsRcode kDeniedRcode = wire::DnsRcode::kNxDomain;

}  // namespace

struct DnsRelay::Datagram {
  std::string bytes;
  sockaddr_storage peer{};
  socklen_t peer_len = 0;
  in_addr to{};  // the address the guest's datagram arrived at: the answer must come from there

  // False: nothing there now (EAGAIN), or an error in errno.
  bool Receive(int fd);
  void Reply(int fd, std::string answer) const;
};

bool DnsRelay::Datagram::Receive(int fd) {
  bytes.resize(wire::kDnsMaxQuery + 1);  // one more: a longer datagram is seen as too long, not as a shorter one
  iovec iov{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(in_pktinfo))> control{};
  msghdr msg{};
  msg.msg_name = &peer;
  msg.msg_namelen = sizeof(peer);
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  msg.msg_control = control.data();
  msg.msg_controllen = control.size();
  ssize_t n = ::recvmsg(fd, &msg, MSG_DONTWAIT);
  if (n < 0) return false;
  bytes.resize(static_cast<size_t>(n));
  peer_len = msg.msg_namelen;
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    if (c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_PKTINFO) continue;
    in_pktinfo info{};
    std::memcpy(&info, CMSG_DATA(c), sizeof(info));
    to = info.ipi_addr;
  }
  return true;
}

void DnsRelay::Datagram::Reply(int fd, std::string answer) const {
  iovec iov{answer.data(), answer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(in_pktinfo))> control{};
  sockaddr_storage name = peer;
  msghdr msg{};
  msg.msg_name = &name;
  msg.msg_namelen = peer_len;
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  msg.msg_control = control.data();
  msg.msg_controllen = control.size();
  cmsghdr* c = CMSG_FIRSTHDR(&msg);
  c->cmsg_level = IPPROTO_IP;
  c->cmsg_type = IP_PKTINFO;
  c->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
  in_pktinfo from{};
  from.ipi_spec_dst = to;
  std::memcpy(CMSG_DATA(c), &from, sizeof(from));
  // A full buffer loses the answer, as UDP may; the guest asks again.
  ::sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

DnsRelay::DnsRelay(const asio::any_io_executor& ex, EgressState* state)
    : state_(state),
      tokens_(state->config->dns_per_second),
      refilled_(std::chrono::steady_clock::now()),
      freed_(ex),
      group_(ex) {
  upstream_ = OperatorResolver(*state->config);
}

Task<> DnsRelay::TakeToken() {
  double rate = std::max<double>(state_->config->dns_per_second, 1);
  for (;;) {
    auto now = std::chrono::steady_clock::now();
    tokens_ = std::min(rate, tokens_ + rate * std::chrono::duration<double>(now - refilled_).count());
    refilled_ = now;
    if (tokens_ >= 1) break;
    std::chrono::nanoseconds wait(static_cast<int64_t>((1 - tokens_) / rate * 1e9) + 1);
    auto slept = co_await Sleep(wait);
    if (!slept) co_return slept;
  }
  tokens_ -= 1;
  co_return Result<>{};
}

std::string DnsRelay::Denied(const wire::DnsQuery& query, const Decision& decision) {
  Denial denial;
  denial.kind = "dns";
  denial.target = wire::DnsNameText(query.name);
  auto name = CanonicalName(denial.target);
  denial.host = name ? *std::move(name) : denial.target;
  denial.rule = decision.rule;
  denial.reason = decision.reason;
  denial.hint = decision.hint;
  state_->Deny(std::move(denial));
  return wire::EncodeDnsError(query, kDeniedRcode, wire::kEdeProhibited, decision.reason + "; " + decision.hint);
}

std::optional<std::string> DnsRelay::AnswerByName(const CompiledPolicy& policy, const wire::DnsQuery& query) {
  Decision decision{
      .allowed = false, .rule = "no rule allows it", .reason = "not a host name", .hint = "", .entry = {}};
  auto name = CanonicalName(wire::DnsNameText(query.name));
  if (name) decision = DecideName(policy, *name);
  if (!decision.allowed) {
    if (OpenForSubnets(policy, query)) return std::nullopt;
    return Denied(query, decision);
  }
  bool address = query.type == wire::kDnsTypeA && query.klass == wire::kDnsClassIn;
  if (!address) return wire::EncodeDnsError(query, wire::DnsRcode::kNoError, 0, "");
  std::string v4 = ToRawV4(state_->names.AddressFor(*name));
  return wire::EncodeDnsAddress(query, v4, kMadeUpTtl);
}

void DnsRelay::Remember(const wire::DnsQuery& query, const std::string& reply) {
  auto name = CanonicalName(wire::DnsNameText(query.name));
  if (!name || query.type != wire::kDnsTypeA) return;
  for (const std::string& raw : wire::DnsAddresses(reply, query, kMaxRemembered))
    if (auto address = FromRaw(raw)) state_->names.Saw(*address, *name);
}

Task<std::string> DnsRelay::Forward(wire::DnsQuery query) {
  if (!upstream_) co_return Fail(Code::kUnavailable, "the server has no resolver configured");
  auto reply = co_await AskResolver(*upstream_, query, state_->config->dns_timeout);
  if (!reply) co_return reply;
  state_->counters.egress_bytes += query.name.size() + 16;
  state_->counters.ingress_bytes += reply->size();
  co_return reply;
}

std::optional<std::string> DnsRelay::AnswerHere(const wire::DnsQuery& query) {
  // While the policy is being changed, one that reads names goes before one that lets everything through, and a name
  // that any of them denies is denied.
  const CompiledPolicy* strictest = state_->policy.get();
  for (const PolicyRef& other : state_->also) {
    if (Denies(*other, query)) return AnswerBy(*other, query);
    if (strictest->mode() == EgressMode::kAllowAll) strictest = other.get();
  }
  return AnswerBy(*strictest, query);
}

bool DnsRelay::Denies(const CompiledPolicy& policy, const wire::DnsQuery& query) const {
  if (policy.mode() != EgressMode::kCustom) return policy.mode() == EgressMode::kDenyAll;
  auto name = CanonicalName(wire::DnsNameText(query.name));
  if (name && DecideName(policy, *name).allowed) return false;
  return !OpenForSubnets(policy, query);
}

bool DnsRelay::OpenForSubnets(const CompiledPolicy& policy, const wire::DnsQuery& query) const {
  return state_->config->dns_for_subnets && !policy.policy().allow_cidrs.empty() && query.type == wire::kDnsTypeA;
}

std::optional<std::string> DnsRelay::AnswerBy(const CompiledPolicy& policy, const wire::DnsQuery& query) {
  if (policy.mode() == EgressMode::kDenyAll) return Denied(query, DecideName(policy, wire::DnsNameText(query.name)));
  if (policy.mode() == EgressMode::kCustom) return AnswerByName(policy, query);
  // The machine has no IPv6: an empty answer makes clients take the IPv4 address at once.
  if (query.type == wire::kDnsTypeAaaa) return wire::EncodeDnsError(query, wire::DnsRcode::kNoError, 0, "");
  return std::nullopt;
}

Task<std::string> DnsRelay::Answer(std::string bytes) {
  auto query = wire::ParseDnsQuery(bytes);
  if (!query) co_return wire::EncodeDnsFormErr(bytes).value_or("");
  if (auto here = AnswerHere(*query)) co_return *std::move(here);
  auto reply = co_await Forward(*query);
  // The policy may be another one by now.
  if (auto here = AnswerHere(*query)) co_return *std::move(here);
  if (reply) Remember(*query, *reply);
  if (reply) co_return reply;
  if (reply.error().code == Code::kCancelled) co_return reply;
  co_return wire::EncodeDnsError(*query, wire::DnsRcode::kServFail, wire::kEdeNetworkError, reply.error().message);
}

Task<> DnsRelay::AnswerDatagram(Datagram datagram) {
  auto query = wire::ParseDnsQuery(datagram.bytes);
  auto free = [this](void*) {
    --outstanding_;
    freed_.Notify();
  };
  std::unique_ptr<void, decltype(free)> charged(this, free);
  auto answer = co_await Answer(datagram.bytes);
  if (!answer) co_return std::unexpected(std::move(answer).error());
  if (answer->empty()) co_return Result<>{};
  if (query && answer->size() > query->udp_size) *answer = wire::EncodeDnsTruncated(*query);
  datagram.Reply(udp_.get(), *std::move(answer));
  co_return Result<>{};
}

Task<> DnsRelay::ServeUdp(Fd socket) {
  auto ex = co_await asio::this_coro::executor;
  udp_ = Fd(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  int on = 1;
  if (!udp_ || ::setsockopt(socket.get(), IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) != 0)
    co_return FailErrno("dns socket");
  SB_CO_TRY(Stream stream, MakeStream(ex, std::move(socket)));
  for (;;) {
    while (outstanding_ >= state_->config->max_dns_outstanding) {
      auto woken = co_await freed_.Wait();
      if (!woken) co_return woken;
    }
    auto token = co_await TakeToken();
    if (!token) co_return token;

    Datagram datagram;
    if (!datagram.Receive(stream.native_handle())) {
      tokens_ += 1;  // nothing was read for it
      if (errno != EAGAIN && errno != EINTR) co_return FailErrno("dns receive");
      auto [ec] = co_await stream.async_wait(Stream::wait_read, kToken);
      if (ec) co_return std::unexpected(FromAsio(ec, "dns"));
      continue;
    }
    ++outstanding_;
    group_.Spawn(UntilCancelled(AnswerDatagram(std::move(datagram))));
  }
}

Task<> DnsRelay::ServeTcp(Stream* guest) {
  for (int i = 0; i < kQueriesPerConnection; ++i) {
    auto reading = ReadDnsMessage(guest, wire::kDnsMaxQuery);
    auto bytes = co_await WithTimeout(std::move(reading), kTcpIdle);
    if (!bytes) co_return std::unexpected(std::move(bytes).error());
    auto token = co_await TakeToken();
    if (!token) co_return token;
    auto answer = co_await Answer(*std::move(bytes));
    if (!answer) co_return std::unexpected(std::move(answer).error());
    if (answer->empty() || answer->size() > kDnsMaxTcpMessage) co_return Fail(Code::kProtocol, "dns: not a query");
    auto writing = WriteDnsMessage(guest, *std::move(answer));
    auto written = co_await WithTimeout(std::move(writing), kTcpIdle);
    if (!written) co_return written;
  }
  co_return Result<>{};
}

}  // namespace sandbar::egress
