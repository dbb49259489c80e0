#include "walker/text.h"

#include <algorithm>

namespace sandbar::walker {

std::string Escape(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (char c : name) {
    auto byte = static_cast<unsigned char>(c);
    if (byte > ' ' && byte < 0x7f && c != '%') {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

bool PathLess(std::string_view a, std::string_view b) {
  auto key = [](char c) { return c == '/' ? 0 : static_cast<int>(static_cast<unsigned char>(c)); };
  return std::ranges::lexicographical_compare(a, b, {}, key, key);
}

}  // namespace sandbar::walker
