#include "wire/client_hello.h"

#include <cstdint>
#include <set>

namespace sandbar::wire {

namespace {

constexpr size_t kRecordHead = 5;
constexpr size_t kHandshakeHead = 4;
constexpr size_t kMaxRecord = 1 << 14;
constexpr uint8_t kRecordHandshake = 22;
constexpr uint8_t kClientHello = 1;
constexpr uint8_t kHostName = 0;
constexpr uint16_t kExtServerName = 0, kExtAlpn = 16, kExtEch = 0xfe0d;

// Takes bytes off the front; a take beyond the end fails and says so at the end, so callers check once.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : rest_(bytes) {}

  std::string_view Take(size_t n) {
    if (n > rest_.size()) {
      failed_ = true;
      rest_ = {};
      return {};
    }
    std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  size_t Number(size_t width) {
    size_t out = 0;
    for (char c : Take(width)) out = out << 8 | static_cast<uint8_t>(c);
    return out;
  }
  // A vector: its length in `width` bytes, then that many.
  std::string_view Vector(size_t width) { return Take(Number(width)); }
  bool empty() const { return rest_.empty(); }
  bool failed() const { return failed_; }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

std::unexpected<Error> Bad(const char* why) {
  return Fail(Code::kProtocol, std::string("tls: ") + why);
}

// RFC 6066 knows one kind of name and forbids two of a kind: a second entry is somebody else's reading.
Result<> ParseServerName(std::string_view body, ClientHello& hello) {
  Cursor ext(body);
  Cursor list(ext.Vector(2));
  size_t type = list.Number(1);
  std::string_view name = list.Vector(2);
  if (ext.failed() || list.failed() || !ext.empty() || !list.empty()) return Bad("bad server name");
  if (type != kHostName || name.empty()) return Bad("bad server name");
  hello.server_name = std::string(name);
  return {};
}

Result<> ParseAlpn(std::string_view body, ClientHello& hello) {
  Cursor ext(body);
  Cursor list(ext.Vector(2));
  while (!list.empty()) hello.alpn.emplace_back(list.Vector(1));
  if (ext.failed() || list.failed() || !ext.empty()) return Bad("bad ALPN");
  return {};
}

Result<ClientHello> ParseBody(std::string_view body) {
  ClientHello hello;
  Cursor in(body);
  in.Take(2 + 32);  // version, random
  in.Vector(1);     // session id
  in.Vector(2);     // cipher suites
  in.Vector(1);     // compression methods
  if (in.failed()) return Bad("bad ClientHello");
  if (in.empty()) return hello;  // no extensions at all
  Cursor extensions(in.Vector(2));
  if (in.failed() || !in.empty()) return Bad("bad ClientHello");
  std::set<size_t> seen;
  while (!extensions.empty()) {
    size_t type = extensions.Number(2);
    std::string_view content = extensions.Vector(2);
    if (extensions.failed()) return Bad("bad extension");
    if (!seen.insert(type).second) return Bad("extension sent twice");
    if (type == kExtServerName) SB_TRYV(ParseServerName(content, hello));
    if (type == kExtAlpn) SB_TRYV(ParseAlpn(content, hello));
    if (type == kExtEch) hello.ech = true;
  }
  return hello;
}

}  // namespace

Result<HelloProgress> ParseClientHello(std::string_view bytes) {
  std::string message;  // the handshake bytes without the records around them
  size_t at = 0;
  for (size_t records = 0;; ++records) {
    if (message.size() >= kHandshakeHead) {
      Cursor head(message);
      if (head.Number(1) != kClientHello) return Bad("not a ClientHello");
      size_t length = head.Number(3);
      if (length > kMaxClientHello) return Fail(Code::kTooLarge, "tls: ClientHello too long");
      if (message.size() - kHandshakeHead >= length) {
        // What follows in the same record would be a second handshake message, which no client has to send yet.
        if (message.size() - kHandshakeHead > length) return Bad("bytes after the ClientHello");
        SB_TRY(ClientHello hello, ParseBody(std::string_view(message).substr(kHandshakeHead)));
        return HelloProgress{.hello = std::move(hello), .need = 0};
      }
    }
    if (records == kMaxHelloRecords) return Fail(Code::kTooLarge, "tls: ClientHello in too many records");
    if (bytes.size() - at < kRecordHead) return HelloProgress{.hello = {}, .need = at + kRecordHead};
    Cursor head(bytes.substr(at, kRecordHead));
    size_t type = head.Number(1), major = head.Number(1), minor = head.Number(1), length = head.Number(2);
    if (type != kRecordHandshake || major != 3 || minor > 4) return Bad("not a handshake record");
    if (length == 0 || length > kMaxRecord) return Bad("bad record length");
    if (message.empty() && bytes.size() - at > kRecordHead && bytes[at + kRecordHead] != kClientHello)
      return Bad("not a ClientHello");
    if (message.size() + length > kHandshakeHead + kMaxClientHello)
      return Fail(Code::kTooLarge, "tls: ClientHello too long");
    at += kRecordHead;
    if (bytes.size() - at < length) return HelloProgress{.hello = {}, .need = at + length};
    message += bytes.substr(at, length);
    at += length;
  }
}

}  // namespace sandbar::wire
