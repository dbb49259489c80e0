#include "egress/denial_answer.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "egress/policy.h"
#include "wire/text.h"

namespace sandbar::egress {

namespace {

// TLS record: alert, TLS 1.2 framing, length 2, fatal, access_denied(49).
constexpr std::string_view kTlsAccessDenied("\x15\x03\x03\x00\x02\x02\x31", 7);

// The Host field's name, for the Denial only: nothing is decided by it.
std::string HostField(std::string_view head) {
  for (size_t at = head.find("\r\n"); at != std::string_view::npos; at = head.find("\r\n", at + 2)) {
    std::string_view line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
    if (line.empty()) break;
    size_t colon = line.find(':');
    if (colon == std::string_view::npos || !wire::EqualsIgnoreCase(line.substr(0, colon), "host")) continue;
    std::string_view value = wire::Trim(line.substr(colon + 1));
    auto name = CanonicalName(value.substr(0, value.find(':')));
    return name ? *std::move(name) : std::string();
  }
  return {};
}

}  // namespace

std::string DenialBody(const Denial& denial) {
  namespace json = boost::json;
  json::object error{{"code", "egress_denied"}, {"host", denial.host}, {"rule", denial.rule}, {"hint", denial.hint}};
  error["message"] = "connection to " + denial.target + " denied: " + denial.reason;
  return json::serialize(json::object{{"error", std::move(error)}});
}

std::string DenialBytes(const Denial& denial, const FirstBytes& first_bytes) {
  if (first_bytes.protocol == AppProtocol::kTls) return std::string(kTlsAccessDenied);
  if (first_bytes.protocol != AppProtocol::kHttp && first_bytes.protocol != AppProtocol::kHttp2) return {};
  std::string body = DenialBody(denial);
  return fmt::format(
      "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      body.size(), body);
}

std::string NameIn(const FirstBytes& first_bytes) {
  if (first_bytes.protocol == AppProtocol::kHttp) return HostField(first_bytes.bytes);
  if (first_bytes.protocol != AppProtocol::kTls) return {};
  auto progress = wire::ParseClientHello(first_bytes.bytes);
  if (!progress || !progress->hello || !progress->hello->server_name) return {};
  auto name = CanonicalName(*progress->hello->server_name);
  return name ? *std::move(name) : std::string();
}

}  // namespace sandbar::egress
