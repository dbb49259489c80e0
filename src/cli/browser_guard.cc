#include "cli/browser_guard.h"

#include <algorithm>

#include "base/ids.h"
#include "crypto/digest.h"
#include "wire/http1.h"
#include "wire/loopback.h"
#include "wire/text.h"

namespace sandbar::cli {
namespace {

constexpr size_t kMaxHead = 64 << 10;
constexpr size_t kMaxLinger = 64 << 10;

// Whether this can be the beginning of an HTTP/1 request line: a method in capitals and a blank.
bool MayBeRequest(std::string_view bytes) {
  const size_t blank = bytes.find(' ');
  const std::string_view method = bytes.substr(0, blank);
  return method.size() <= 16 && (blank == std::string_view::npos || !method.empty()) &&
         std::ranges::all_of(method, [](char c) { return c >= 'A' && c <= 'Z'; });
}

// "localhost:3000", "127.0.0.1", "[::1]:3000".
bool IsLoopbackAuthority(std::string_view host) {
  const size_t bracket = host.find(']');
  if (host.starts_with('[') && bracket != std::string_view::npos)
    return wire::IsLoopbackHost(host.substr(1, bracket - 1));
  return wire::IsLoopbackHost(host.substr(0, host.find(':')));
}

}  // namespace

std::string ForwardName(std::string_view sandbox, int port) {
  const std::string text = std::string(sandbox) + "/" + std::to_string(port);
  return "forward-" + crypto::Sha256Hex(text).substr(0, 12) + ".localhost";
}

std::optional<std::string> AnswerToBrowser(std::string_view bytes, const std::string& authority) {
  if (!MayBeRequest(bytes)) return "";
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (bytes.size() < kMaxHead) return std::nullopt;
    return "";
  }
  wire::HttpParser parser(wire::HttpKind::kRequest);
  std::string body;
  auto used = parser.Feed(bytes.substr(0, end + 4), &body);
  if (!used || !parser.head_done()) return "";
  const wire::HttpHead& head = parser.head();
  // Browsers send these to loopback with every request, and pages cannot forge or leave them out. Not all send them
  // with a WebSocket's, but then they say which page asks.
  const bool fetches = !head.Get("sec-fetch-mode").empty() && !head.Get("sec-fetch-site").empty();
  const bool upgrades = !head.Get("upgrade").empty() && !head.Get("origin").empty();
  if ((!fetches && !upgrades) || !IsLoopbackAuthority(head.Get("host"))) return "";
  const std::string target = head.target.starts_with('/') ? head.target : "/";
  const std::string text =
      "Cookies ignore ports: a page here would share them with everything on this machine's loopback. Use http://" +
      authority + "/ instead.\n";
  return "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://" + authority + target +
         "\r\nCache-Control: no-store\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
         "Connection: close\r\nContent-Length: " +
         std::to_string(text.size()) + "\r\n\r\n" + text;
}

// Not http::MessageReader: it keeps no copy of the bytes that it parses, and bytes of other protocols must pass as they
// are.
Task<bool> BrowserGuard::Decide() {
  while (true) {
    std::optional<std::string> answer = early_.empty() ? std::nullopt : AnswerToBrowser(early_, authority_);
    if (answer && answer->empty()) co_return true;
    if (answer) {
      http::Pieces pieces{*answer};
      SB_CO_TRYV(co_await stream_->WriteAll(pieces));
      SB_CO_TRYV(co_await stream_->Linger(kMaxLinger));
      early_.clear();
      co_return false;
    }
    std::string piece(16 << 10, '\0');
    SB_CO_TRY(size_t n, co_await stream_->ReadSome(piece.data(), piece.size()));
    if (n == 0) co_return true;
    early_.append(piece, 0, n);
  }
}

Task<size_t> BrowserGuard::ReadSome(char* data, size_t n) {
  if (!decided_) {
    SB_CO_TRY(bool passes, co_await Decide());
    decided_ = true;
    if (!passes) co_return Fail(Code::kClosed, "a browser was redirected to the host name of this forwarded port");
  }
  if (early_.empty()) co_return co_await stream_->ReadSome(data, n);
  const size_t taken = early_.copy(data, n);
  early_.erase(0, taken);
  co_return taken;
}

}  // namespace sandbar::cli
