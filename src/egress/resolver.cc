#include "egress/resolver.h"

#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/ids.h"
#include "egress/stream_io.h"

namespace sandbar::egress {

namespace {

constexpr size_t kUdpBuffer = 4096;  // a resolver never sends more than the EDNS size that we offer
constexpr int kTries = 2;

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

Task<std::string> AskTcp(OperatorEndpoint upstream, wire::DnsQuery query, std::chrono::milliseconds timeout) {
  auto connected = co_await ConnectOperator(upstream, timeout);
  if (!connected) co_return std::unexpected(std::move(connected).error());
  Stream stream = *std::move(connected);
  std::string out = wire::EncodeDnsQuery(query);
  auto written = co_await WriteDnsMessage(&stream, std::move(out));
  if (!written) co_return std::unexpected(std::move(written).error());
  auto reply = co_await ReadDnsMessage(&stream, kDnsMaxTcpMessage);
  if (!reply) co_return std::unexpected(std::move(reply).error());
  if (!wire::ParseDnsReply(*reply, query)) co_return Fail(Code::kProtocol, "dns: wrong reply");
  co_return reply;
}

}  // namespace

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

std::optional<OperatorEndpoint> OperatorResolver(const EgressConfig& config) {
  std::string text;
  if (config.resolver.empty()) {
    std::ifstream file("/etc/resolv.conf");
    text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return ChooseResolver(config.resolver, text);
}

Task<std::string> AskResolver(OperatorEndpoint upstream, wire::DnsQuery query, std::chrono::milliseconds timeout) {
  std::chrono::milliseconds each = timeout / kTries;
  Result<std::string> reply = Fail(Code::kTimeout, "the resolver did not answer");
  for (int i = 0; i < kTries; ++i) {
    wire::DnsQuery asked = query;
    FillRandom(&asked.id, sizeof(asked.id));
    asked.recursion_desired = true;
    auto udp = AskUdp(upstream, asked);
    reply = co_await WithTimeout(std::move(udp), each);
    if (reply && wire::ParseDnsReply(*reply, asked)->truncated) {
      auto tcp = AskTcp(upstream, asked, each);
      auto whole = co_await WithTimeout(std::move(tcp), each);
      // A resolver without TCP: its truncated answer is still the best there is.
      if (whole) reply = std::move(whole);
    }
    if (reply || reply.error().code == Code::kCancelled) break;
  }
  if (reply) SetId(*reply, query.id);
  co_return reply;
}

Task<std::string> ReadDnsMessage(Stream* stream, size_t limit) {
  auto head = co_await ReadExactly(stream, 2);
  if (!head) co_return std::unexpected(std::move(head).error());
  size_t n = static_cast<size_t>(static_cast<uint8_t>((*head)[0])) << 8 | static_cast<uint8_t>((*head)[1]);
  if (n > limit) co_return Fail(Code::kProtocol, "dns: message too long");
  auto body = co_await ReadExactly(stream, n);
  co_return body;
}

Task<> WriteDnsMessage(Stream* stream, std::string message) {
  std::string framed;
  framed.push_back(static_cast<char>(message.size() >> 8));
  framed.push_back(static_cast<char>(message.size() & 0xff));
  framed += message;
  auto written = co_await WriteAll(stream, std::move(framed));
  co_return written;
}

}  // namespace sandbar::egress
