#include "layer_scanner/text.h"

#include <algorithm>

namespace sandbar::layer_scanner {

namespace {

constexpr std::string_view kDigits = "0123456789ABCDEF";

bool IsPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > ' ' && byte < 0x7f && c != '%';
}

}  // namespace

std::string Escape(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (IsPlain(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

bool EscapedLess(std::string_view a, std::string_view b) {
  const auto [left, right] = std::ranges::mismatch(a, b);
  if (right == b.end()) return false;
  if (left == a.end()) return true;
  // Up to there both look the same; what follows begins with "%" for one that is not plain, and digits are in order.
  const bool plain_left = IsPlain(*left), plain_right = IsPlain(*right);
  if (!plain_left && !plain_right) return static_cast<unsigned char>(*left) < static_cast<unsigned char>(*right);
  return (plain_left ? *left : '%') < (plain_right ? *right : '%');
}

bool PathLess(std::string_view a, std::string_view b) {
  auto key = [](char c) { return c == '/' ? 0 : static_cast<int>(static_cast<unsigned char>(c)); };
  return std::ranges::lexicographical_compare(a, b, {}, key, key);
}

}  // namespace sandbar::layer_scanner
