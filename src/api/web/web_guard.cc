#include "api/web/web_guard.h"

#include <algorithm>
#include <charconv>

#include "wire/text.h"
#include "wire/url.h"

namespace sandbar::api {
namespace {

// Both spellings where the port is the scheme's default: clients leave it out then.
std::vector<std::string> Spellings(const std::string& name, uint16_t port, bool tls) {
  std::vector<std::string> out{name + ":" + std::to_string(port)};
  if (port == (tls ? 443 : 80)) out.push_back(name);
  return out;
}

bool Contains(const std::vector<std::string>& list, const std::string& item) {
  return std::ranges::find(list, item) != list.end();
}

// "sb-x.localhost:8787" without its port; the label may not have one of its own.
std::string_view WithoutPort(std::string_view host) {
  size_t colon = host.rfind(':');
  return colon == std::string_view::npos ? host : host.substr(0, colon);
}

// "localhost:9000", "127.0.0.1:9000", "[::1]:9000", each also without the port.
bool IsLoopbackAuthority(std::string_view host) {
  for (std::string_view name : {"localhost", "127.0.0.1", "[::1]"}) {
    if (!host.starts_with(name)) continue;
    std::string_view rest = host.substr(name.size());
    if (rest.empty()) return true;
    unsigned port = 0;
    auto [end, ec] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), port);
    return rest.size() > 1 && rest[0] == ':' && rest[1] != '0' && ec == std::errc() &&
           end == rest.data() + rest.size() && port <= 65535;
  }
  return false;
}

}  // namespace

bool CameOverLoopback(std::string_view peer) {
  return peer.starts_with("127.") || peer.starts_with("[::1]:") || peer.starts_with("[::ffff:127.");
}

WebGuard::WebGuard(const WebGuardConfig& config) : preview_suffixes_{".localhost"}, tls_(config.tls) {
  if (!config.preview_domain.empty()) preview_suffixes_.push_back("." + wire::LowerCase(config.preview_domain));
  auto add = [this](const std::string& name, uint16_t port, bool tls) {
    for (const std::string& spelling : Spellings(name, port, tls)) {
      authorities_.push_back(spelling);
      origins_.push_back((tls ? "https://" : "http://") + spelling);
    }
  };
  for (const std::string& name : config.host_names) add(wire::LowerCase(name), config.port, config.tls);

  if (auto url = wire::ParseUrl(config.public_url)) {
    bool v6 = url->host.contains(':');
    std::string name = wire::LowerCase(v6 ? "[" + url->host + "]" : url->host);
    add(name, url->port, url->scheme == "https");
  }
}

WebGuard::Place WebGuard::Classify(std::string_view host, bool loopback) const {
  std::string name = wire::LowerCase(host);
  if (Contains(authorities_, name) || (loopback && IsLoopbackAuthority(name))) return Place::kApi;
  return PreviewLabel(name).empty() ? Place::kForeign : Place::kPreview;
}

std::string WebGuard::PreviewLabel(std::string_view host) const {
  const std::string name = wire::LowerCase(host);
  std::string_view bare = WithoutPort(name);
  if (!bare.starts_with("sb-")) return "";
  for (const std::string& suffix : preview_suffixes_)
    if (bare.ends_with(suffix)) return std::string(bare.substr(0, bare.size() - suffix.size()));
  return "";
}

Result<> WebGuard::CheckPort(std::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view digits = host.substr(colon + 1);
  int port = 0;
  auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const bool plain = std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!plain || ec != std::errc{} || end != digits.data() + digits.size() || port < 1 || port > 65535)
    return Fail(Code::kBadRequest, "Host: the port behind the colon must be a number from 1 to 65535");
  return {};
}

Result<> WebGuard::Check(const http::HttpRequest& request, bool loopback) const {
  Place place = Classify(request.Get("host"), loopback);
  if (place == Place::kPreview) return Fail(Code::kNotFound, "there is no such preview");
  if (place == Place::kForeign)
    return Fail(Code::kMisdirected,
                "this server does not answer for that Host: set server.public_url to the address that clients use; a "
                "forwarded port (ssh -L) needs no setting, but its Host has to be localhost, 127.0.0.1 or [::1]");

  // Browsers set these by themselves and pages cannot forge them. Node's fetch sends neither. A page behind the same
  // forwarded port names it in both fields; a page on any other port of this machine does not.
  if (request.Has("origin")) {
    const std::string origin = wire::LowerCase(request.Get("origin"));
    const std::string host = wire::LowerCase(request.Get("host"));
    const bool forwarded = loopback && IsLoopbackAuthority(host) && origin == (tls_ ? "https://" : "http://") + host;
    if (!forwarded && !Contains(origins_, origin))
      return Fail(Code::kForbidden, "requests from other origins are refused");
  }
  if (request.Has("sec-fetch-site")) {
    std::string site = wire::LowerCase(request.Get("sec-fetch-site"));
    if (site != "same-origin" && site != "none") return Fail(Code::kForbidden, "requests from other sites are refused");
  }
  return {};
}

std::string AddressOf(std::string peer) {
  peer = peer.substr(0, peer.rfind(':'));
  std::erase_if(peer, [](char c) { return c == '[' || c == ']'; });
  return peer;
}

}  // namespace sandbar::api
