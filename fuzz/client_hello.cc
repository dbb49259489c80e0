// A TLS client's first bytes, which decide where a connection may go: the parser must bound everything, never go back
// on what it said about a shorter piece, and find the same name however the bytes are cut into records.
#include "wire/client_hello.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using namespace sandbar::wire;

namespace {

// The handshake bytes of a first flight that was parsed, cut into records of another size.
std::string Recut(std::string_view in, size_t each) {
  std::string message, out;
  while (in.size() >= 5) {
    size_t length = static_cast<size_t>(static_cast<uint8_t>(in[3])) << 8 | static_cast<uint8_t>(in[4]);
    message += in.substr(5, length);
    in.remove_prefix(std::min(in.size(), 5 + length));
    size_t whole = message.size() < 4 ? SIZE_MAX
                                      : 4 + (static_cast<size_t>(static_cast<uint8_t>(message[1])) << 16 |
                                             static_cast<size_t>(static_cast<uint8_t>(message[2])) << 8 |
                                             static_cast<uint8_t>(message[3]));
    if (message.size() >= whole) break;
  }
  for (size_t at = 0; at < message.size(); at += each) {
    std::string piece = message.substr(at, each);
    out += std::string("\x16\x03\x03", 3);
    out.push_back(static_cast<char>(piece.size() >> 8));
    out.push_back(static_cast<char>(piece.size() & 0xff));
    out += piece;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view in(reinterpret_cast<const char*>(data), size);
  auto whole = ParseClientHello(in);
  if (whole && !whole->hello && (whole->need <= size || whole->need > kMaxHelloBytes)) std::abort();
  // A prefix is either not enough yet or says the same.
  auto half = ParseClientHello(in.substr(0, size / 2));
  if (whole && whole->hello && (!half || (half->hello && half->hello->server_name != whole->hello->server_name)))
    std::abort();
  if (whole && whole->hello) {
    if (whole->hello->server_name && whole->hello->server_name->empty()) std::abort();
    auto again = ParseClientHello(Recut(in, 1000));
    if (!again || !again->hello || again->hello->server_name != whole->hello->server_name ||
        again->hello->alpn != whole->hello->alpn || again->hello->ech != whole->hello->ech)
      std::abort();
  }
  return 0;
}
