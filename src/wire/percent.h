// Hexadecimal digits, and a lenient decoder of %XX escapes, for file names that our server writes and for texts of
// clients in which secrets are searched. Pure functions, any thread.
//
//   DecodeEscapes("/a%20b")     // "/a b"
#pragma once

#include <string>
#include <string_view>

namespace sandbar::wire {

// 0 to 15; -1 for a character that is no hexadecimal digit.
constexpr int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Every %XX becomes its byte; a '%' without two digits stays as it is. Strict decoding of URLs is in wire/url.h.
std::string DecodeEscapes(std::string_view text);

}  // namespace sandbar::wire
