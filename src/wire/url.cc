#include "wire/url.h"

#include <algorithm>

#include "wire/percent.h"
#include "wire/text.h"

namespace sandbar::wire {

namespace {

constexpr size_t kMaxPairs = 256;

Result<std::string> Decode(std::string_view s, bool plus_is_space) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size(); ++i) {
    char c = s[i];
    if (c == '+' && plus_is_space) {
      c = ' ';
    } else if (c == '%') {
      const int high = i + 1 < s.size() ? HexDigit(s[i + 1]) : -1;
      const int low = i + 2 < s.size() ? HexDigit(s[i + 2]) : -1;
      if (high < 0 || low < 0) return Fail(Code::kBadRequest, "Invalid request: bad percent escape in the URL");
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (c == '\0') return Fail(Code::kBadRequest, "Invalid request: NUL in the URL");
    out.push_back(c);
  }
  if (!IsUtf8(out)) return Fail(Code::kBadRequest, "Invalid request: the URL is not UTF-8");
  return out;
}

bool IsUnreserved(char c) {
  constexpr std::string_view kMarks = "-_.!~*'()";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kMarks.contains(c);
}

Result<uint16_t> ParsePort(std::string_view s) {
  unsigned n = 0;
  for (char c : s) {
    if (c < '0' || c > '9' || n > 65535) return Fail(Code::kBadRequest, "bad port in URL");
    n = n * 10 + static_cast<unsigned>(c - '0');
  }
  if (n == 0 || n > 65535) return Fail(Code::kBadRequest, "bad port in URL");
  return static_cast<uint16_t>(n);
}

uint16_t DefaultPort(std::string_view scheme) {
  return scheme == "https" ? 443 : 80;
}

Result<void> ParseAuthority(std::string_view authority, Url& out) {
  if (authority.contains('@')) return Fail(Code::kBadRequest, "user names in URLs are not supported");
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == authority.npos) return Fail(Code::kBadRequest, "bad host in URL");
    out.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    out.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (out.host.empty()) return Fail(Code::kBadRequest, "no host in URL");
  out.port = DefaultPort(out.scheme);
  if (port.empty()) return {};
  if (!port.starts_with(':')) return Fail(Code::kBadRequest, "bad host in URL");
  SB_TRY(out.port, ParsePort(port.substr(1)));
  return {};
}

}  // namespace

Result<std::string> PercentDecode(std::string_view s) {
  return Decode(s, false);
}

Result<std::vector<std::string>> SplitPath(std::string_view path) {
  std::vector<std::string> out;
  if (path.starts_with('/')) path.remove_prefix(1);
  if (path.empty()) return out;
  while (true) {
    const size_t slash = path.find('/');
    SB_TRY(std::string segment, PercentDecode(path.substr(0, slash)));
    out.push_back(std::move(segment));
    if (slash == path.npos) return out;
    path.remove_prefix(slash + 1);
  }
}

std::optional<std::string_view> Query::Get(std::string_view name) const {
  for (const auto& [key, value] : pairs)
    if (key == name) return value;
  return std::nullopt;
}

std::vector<std::string_view> Query::GetAll(std::string_view name) const {
  std::vector<std::string_view> out;
  for (const auto& [key, value] : pairs)
    if (key == name) out.push_back(value);
  return out;
}

Result<Query> ParseQuery(std::string_view query) {
  Query out;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view part = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (part.empty()) continue;
    if (out.pairs.size() >= kMaxPairs) return Fail(Code::kBadRequest, "Invalid request: too many query parameters");
    const size_t equals = std::min(part.find('='), part.size());
    SB_TRY(std::string key, Decode(part.substr(0, equals), true));
    SB_TRY(std::string value, Decode(part.substr(std::min(equals + 1, part.size())), true));
    out.pairs.emplace_back(std::move(key), std::move(value));
  }
  return out;
}

std::string EncodeComponent(std::string_view s) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  out.reserve(s.size());
  for (char c : s) {
    if (IsUnreserved(c)) {
      out.push_back(c);
    } else {
      const auto b = static_cast<unsigned char>(c);
      out.push_back('%');
      out.push_back(kHex[b >> 4]);
      out.push_back(kHex[b & 15]);
    }
  }
  return out;
}

std::string EncodeQuery(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string out;
  for (const auto& [key, value] : pairs) {
    if (!out.empty()) out.push_back('&');
    out += EncodeComponent(key);
    out.push_back('=');
    out += EncodeComponent(value);
  }
  return out;
}

std::string Url::HostHeader() const {
  const bool v6 = host.contains(':');
  std::string out;
  if (v6) out.push_back('[');
  out.append(host);
  if (v6) out.push_back(']');
  if (port != DefaultPort(scheme)) out.append(":").append(std::to_string(port));
  return out;
}

Result<Url> ParseUrl(std::string_view url) {
  for (char c : url)
    if (c <= 0x20 || c == 0x7f) return Fail(Code::kBadRequest, "bad character in URL");
  const size_t colon = url.find("://");
  if (colon == url.npos) return Fail(Code::kBadRequest, "URL without http:// or https://");
  Url out;
  out.scheme = url.substr(0, colon);
  std::ranges::transform(out.scheme, out.scheme.begin(), AsciiLower);
  if (out.scheme != "http" && out.scheme != "https") return Fail(Code::kBadRequest, "URL is neither http nor https");
  url.remove_prefix(colon + 3);
  url = url.substr(0, url.find('#'));
  const size_t end = std::min(url.find_first_of("/?"), url.size());
  SB_TRYV(ParseAuthority(url.substr(0, end), out));
  if (end == url.size() || url[end] != '/') out.target.push_back('/');
  out.target.append(url.substr(end));
  return out;
}

}  // namespace sandbar::wire
