#include "base/base64.h"

#include <algorithm>

namespace sandbar {

namespace {

constexpr std::string_view kStandard = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kUrl = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

int Letter(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  return c >= '0' && c <= '9' ? c - '0' + 52 : -1;
}

int StandardDigit(char c) {
  return c == '+' ? 62 : c == '/' ? 63 : Letter(c);
}

int UrlDigit(char c) {
  return c == '-' ? 62 : c == '_' ? 63 : Letter(c);
}

std::string Encode(std::string_view bytes, std::string_view alphabet) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  unsigned bits = 0;
  int have = 0;
  for (char c : bytes) {
    bits = (bits << 8 | static_cast<unsigned char>(c)) & 0xFFFF;
    for (have += 8; have >= 6;) {
      have -= 6;
      out += alphabet[(bits >> have) & 63];
    }
  }
  if (have > 0) out += alphabet[(bits << (6 - have)) & 63];
  return out;
}

struct Decoded {
  std::string bytes;
  size_t used = 0;
  unsigned rest = 0;  // bits of the last character that belong to no byte
};

template <class Digit>
Decoded Decode(std::string_view text, Digit digit) {
  Decoded out;
  out.bytes.reserve(text.size() / 4 * 3 + 3);
  unsigned bits = 0;
  int have = 0;
  for (char c : text) {
    const int value = digit(c);
    if (value < 0) break;
    ++out.used;
    bits = (bits << 6 | static_cast<unsigned>(value)) & 0xFFFF;
    have += 6;
    if (have < 8) continue;
    have -= 8;
    out.bytes += static_cast<char>((bits >> have) & 255);
  }
  out.rest = bits & ((1U << have) - 1);
  return out;
}

}  // namespace

std::string EncodeBase64(std::string_view bytes) {
  std::string out = Encode(bytes, kStandard);
  out.append((4 - out.size() % 4) % 4, '=');
  return out;
}

std::string EncodeBase64Url(std::string_view bytes) {
  return Encode(bytes, kUrl);
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  if (text.ends_with('=')) text.remove_suffix(1);
  if (text.ends_with('=')) text.remove_suffix(1);
  Decoded out = Decode(text, StandardDigit);
  if (out.used != text.size() || text.size() % 4 == 1) return std::nullopt;
  return std::move(out.bytes);
}

std::optional<std::string> DecodeBase64Url(std::string_view text) {
  Decoded out = Decode(text, UrlDigit);
  if (out.used != text.size() || text.size() % 4 == 1 || out.rest != 0) return std::nullopt;
  return std::move(out.bytes);
}

std::string DecodeBase64Prefix(std::string_view text, size_t* used) {
  Decoded out = Decode(text, [](char c) { return std::max(StandardDigit(c), UrlDigit(c)); });
  if (used != nullptr) *used = out.used;
  return std::move(out.bytes);
}

bool IsBase64Text(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c == '=' || StandardDigit(c) >= 0; });
}

}  // namespace sandbar
