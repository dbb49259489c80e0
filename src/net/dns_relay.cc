#include "net/dns_relay.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/ids.h"

namespace sandbar::net {

namespace {

constexpr size_t kUdpBuffer = 4096;  // a resolver never sends more than the EDNS size that we offer
constexpr size_t kMaxTcpMessage = 65535;
constexpr int kUpstreamTries = 2;
constexpr int kQueriesPerConnection = 256;
constexpr std::chrono::seconds kTcpIdle{10};

// NXDOMAIN, not REFUSED: after REFUSED glibc asks everything again and then calls it a temporary failure, musl waits
// for its whole timeout; NXDOMAIN is final everywhere. The extended error says what really happened.
constexpr wire::DnsRcode kDeniedRcode = wire::DnsRcode::kNxDomain;

void SetId(std::string& message, uint16_t id) {
  message[0] = static_cast<char>(id >> 8);
  message[1] = static_cast<char>(id & 0xff);
}

// One UDP exchange. A datagram that does not answer the question (late, forged) is skipped, not fatal.
Task<std::string> AskUdp(OperatorEndpoint upstream, wire::DnsQuery query) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(Fd fd, OpenOperatorUdp(upstream));
  SB_CO_TRY(Stream stream, MakeStream(ex, std::move(fd)));
  std::string out = wire::EncodeDnsQuery(query);
  if (::send(stream.native_handle(), out.data(), out.size(), MSG_NOSIGNAL) < 0) co_return FailErrno("dns send");
  std::string in(kUdpBuffer, '\0');
  for (;;) {
    auto [ec] = co_await stream.async_wait(Stream::wait_read, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "dns"));
    ssize_t n = ::recv(stream.native_handle(), in.data(), in.size(), 0);
    if (n < 0 && errno != EAGAIN) co_return FailErrno("dns receive");
    if (n > 0 && wire::ParseDnsReply({in.data(), static_cast<size_t>(n)}, query)) {
      in.resize(static_cast<size_t>(n));
      co_return in;
    }
  }
}

// Reads exactly n bytes; kClosed at the end of the stream.
Task<std::string> ReadExactly(Stream* stream, size_t n) {
  std::string out(n, '\0');
  size_t got = 0;
  while (got < n) {
    ssize_t r = ::recv(stream->native_handle(), out.data() + got, n - got, 0);
    if (r == 0) co_return Fail(Code::kClosed, "dns: connection closed");
    if (r > 0) got += static_cast<size_t>(r);
    if (r > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) co_return FailErrno("dns receive");
    auto [ec] = co_await stream->async_wait(Stream::wait_read, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "dns"));
  }
  co_return out;
}

Task<> WriteAll(Stream* stream, std::string bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    ssize_t w = ::send(stream->native_handle(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (w > 0) rest.remove_prefix(static_cast<size_t>(w));
    if (w > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) co_return FailErrno("dns send");
    auto [ec] = co_await stream->async_wait(Stream::wait_write, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "dns"));
  }
  co_return Result<>{};
}

Task<std::string> ReadMessage(Stream* stream, size_t limit) {
  auto head = co_await ReadExactly(stream, 2);
  if (!head) co_return std::unexpected(std::move(head).error());
  size_t n = static_cast<size_t>(static_cast<uint8_t>((*head)[0])) << 8 | static_cast<uint8_t>((*head)[1]);
  if (n > limit) co_return Fail(Code::kProtocol, "dns: message too long");
  auto body = co_await ReadExactly(stream, n);
  co_return body;
}

Task<> WriteMessage(Stream* stream, std::string message) {
  std::string framed;
  framed.push_back(static_cast<char>(message.size() >> 8));
  framed.push_back(static_cast<char>(message.size() & 0xff));
  framed += message;
  auto written = co_await WriteAll(stream, std::move(framed));
  co_return written;
}

Task<std::string> AskTcp(OperatorEndpoint upstream, wire::DnsQuery query, std::chrono::milliseconds timeout) {
  auto connected = co_await ConnectOperator(upstream, timeout);
  if (!connected) co_return std::unexpected(std::move(connected).error());
  Stream stream = *std::move(connected);
  std::string out = wire::EncodeDnsQuery(query);
  auto written = co_await WriteMessage(&stream, std::move(out));
  if (!written) co_return std::unexpected(std::move(written).error());
  auto reply = co_await ReadMessage(&stream, kMaxTcpMessage);
  if (!reply) co_return std::unexpected(std::move(reply).error());
  if (!wire::ParseDnsReply(*reply, query)) co_return Fail(Code::kProtocol, "dns: wrong reply");
  co_return reply;
}

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

std::optional<OperatorEndpoint> ChooseResolver(const std::string& configured, std::string_view resolv_conf) {
  if (!configured.empty()) {
    auto endpoint = ParseEndpoint(configured);
    if (!endpoint) {
      log::Warn("network.resolver is not usable: {}", endpoint.error().message);
      return std::nullopt;
    }
    return OperatorEndpoint{*endpoint};
  }
  while (!resolv_conf.empty()) {
    std::string_view line = resolv_conf.substr(0, resolv_conf.find('\n'));
    resolv_conf.remove_prefix(std::min(line.size() + 1, resolv_conf.size()));
    constexpr std::string_view kKey = "nameserver";
    if (!line.starts_with(kKey)) continue;
    line.remove_prefix(kKey.size());
    size_t from = line.find_first_not_of(" \t");
    if (from == 0 || from == std::string_view::npos) continue;
    line.remove_prefix(from);
    auto address = ParseAddress(line.substr(0, line.find_first_of(" \t\r")));
    if (address) return OperatorEndpoint{{*address, 53}};
  }
  return std::nullopt;
}

DnsRelay::DnsRelay(const asio::any_io_executor& ex, EgressState* state)
    : state_(state),
      tokens_(state->config->dns_per_second),
      refilled_(std::chrono::steady_clock::now()),
      freed_(ex),
      group_(ex) {
  std::ifstream file("/etc/resolv.conf");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  upstream_ = ChooseResolver(state->config->resolver, text);
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

std::string DnsRelay::Denied(const wire::DnsQuery& query) {
  state_->Deny("dns", wire::DnsNameText(query.name), std::string(kDenyAllReason), DenyAllHint());
  return wire::EncodeDnsError(query, kDeniedRcode, wire::kEdeProhibited, kDenyAllReason);
}

Task<std::string> DnsRelay::Forward(wire::DnsQuery query) {
  if (!upstream_) co_return Fail(Code::kUnavailable, "the server has no resolver configured");
  std::chrono::milliseconds each = state_->config->dns_timeout / kUpstreamTries;
  Result<std::string> reply = Fail(Code::kTimeout, "the resolver did not answer");
  for (int i = 0; i < kUpstreamTries; ++i) {
    wire::DnsQuery asked = query;
    FillRandom(&asked.id, sizeof(asked.id));
    asked.recursion_desired = true;
    auto udp = AskUdp(*upstream_, asked);
    reply = co_await WithTimeout(std::move(udp), each);
    if (reply && wire::ParseDnsReply(*reply, asked)->truncated) {
      auto tcp = AskTcp(*upstream_, asked, each);
      auto whole = co_await WithTimeout(std::move(tcp), each);
      // A resolver without TCP: its truncated answer is still the best there is.
      if (whole) reply = std::move(whole);
    }
    if (reply) break;
  }
  if (!reply) co_return reply;
  state_->counters.egress_bytes += query.name.size() + 16;
  state_->counters.ingress_bytes += reply->size();
  SetId(*reply, query.id);
  co_return reply;
}

Task<std::string> DnsRelay::Answer(std::string bytes) {
  auto query = wire::ParseDnsQuery(bytes);
  if (!query) co_return wire::EncodeDnsFormErr(bytes).value_or("");
  if (state_->DeniesAll()) co_return Denied(*query);
  // The machine has no IPv6: an empty answer makes clients take the IPv4 address at once.
  if (query->type == wire::kDnsTypeAaaa) co_return wire::EncodeDnsError(*query, wire::DnsRcode::kNoError, 0, "");
  auto reply = co_await Forward(*query);
  if (state_->DeniesAll()) co_return Denied(*query);
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
    auto reading = ReadMessage(guest, wire::kDnsMaxQuery);
    auto bytes = co_await WithTimeout(std::move(reading), kTcpIdle);
    if (!bytes) co_return std::unexpected(std::move(bytes).error());
    auto token = co_await TakeToken();
    if (!token) co_return token;
    auto answer = co_await Answer(*std::move(bytes));
    if (!answer) co_return std::unexpected(std::move(answer).error());
    if (answer->empty() || answer->size() > kMaxTcpMessage) co_return Fail(Code::kProtocol, "dns: not a query");
    auto writing = WriteMessage(guest, *std::move(answer));
    auto written = co_await WithTimeout(std::move(writing), kTcpIdle);
    if (!written) co_return written;
  }
  co_return Result<>{};
}

}  // namespace sandbar::net
