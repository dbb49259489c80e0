// Test support: ClientHello messages, well-formed and not. Only *_test.cc files and benchmarks include this.
#pragma once

#include <string>
#include <vector>

namespace sandbar::wire::testing {

inline std::string Number(size_t value, size_t width) {
  std::string out(width, '\0');
  for (size_t i = 0; i < width; ++i) out[width - 1 - i] = static_cast<char>(value >> (8 * i));
  return out;
}
inline std::string Vector(size_t width, const std::string& bytes) {
  return Number(bytes.size(), width) + bytes;
}
inline std::string Extension(size_t type, const std::string& body) {
  return Number(type, 2) + Vector(2, body);
}
inline std::string Sni(const std::string& name) {
  return Extension(0, Vector(2, Number(0, 1) + Vector(2, name)));
}
inline std::string Ech() {
  return Extension(0xfe0d, "whatever");
}
inline std::string Alpn(const std::vector<std::string>& protocols) {
  std::string list;
  for (const auto& p : protocols) list += Vector(1, p);
  return Extension(16, Vector(2, list));
}
inline std::string Message(const std::string& extensions) {
  std::string body = Number(0x0303, 2) + std::string(32, 'r') + Vector(1, "sessionid") + Vector(2, Number(0x1301, 2)) +
                     Vector(1, Number(0, 1)) + Vector(2, extensions);
  return Number(1, 1) + Vector(3, body);
}
inline std::string Records(const std::string& message, size_t each = 1 << 14) {
  std::string out;
  for (size_t at = 0; at < message.size(); at += each)
    out += std::string("\x16\x03\x01", 3) + Vector(2, message.substr(at, each));
  return out;
}
inline std::string Hello(const std::string& extensions) {
  return Records(Message(extensions));
}

}  // namespace sandbar::wire::testing
