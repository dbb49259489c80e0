// Small ASCII and UTF-8 helpers shared by the codecs. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sandbar::wire {

char AsciiLower(char c);
std::string LowerCase(std::string_view s);
bool EqualsIgnoreCase(std::string_view a, std::string_view b);
// True when `token` is an element of the comma-separated list `list` (as in Connection), ignoring case and blanks.
bool ListHasToken(std::string_view list, std::string_view token);
// Without spaces and tabs at both ends.
std::string_view Trim(std::string_view s);

// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
size_t EditDistance(std::string_view a, std::string_view b);
// The candidate that a misspelt word most likely meant; empty when none is near.
std::string_view Nearest(std::string_view word, const std::vector<std::string>& candidates);

// One step of UTF-8 decoding. `length` is 0 when `s` ends inside a character that may still become valid.
struct Utf8Step {
  char32_t code_point = 0;  // U+FFFD for an invalid sequence
  uint8_t length = 0;       // bytes used
  bool valid = false;
};
Utf8Step DecodeUtf8(std::string_view s);
bool IsUtf8(std::string_view s);

}  // namespace sandbar::wire
