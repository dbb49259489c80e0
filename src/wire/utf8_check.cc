#include "wire/utf8_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "wire/text.h"

namespace sandbar::wire {

namespace {

// How many bytes at the beginning are ASCII, in steps of eight.
size_t AsciiPrefix(std::string_view s) {
  size_t n = 0;
  for (; n + 8 <= s.size(); n += 8) {
    uint64_t word = 0;
    std::memcpy(&word, s.data() + n, 8);
    if ((word & 0x8080808080808080ULL) != 0) break;
  }
  return n;
}

}  // namespace

bool Utf8Check::Feed(std::string_view bytes) {
  while (held_ != 0 && !bytes.empty()) {
    character_[held_++] = bytes.front();
    bytes.remove_prefix(1);
    const Utf8Step step = DecodeUtf8(std::string_view(character_, held_));
    if (step.length == 0) continue;
    if (!step.valid) return false;
    held_ = 0;
  }
  while (!bytes.empty()) {
    bytes.remove_prefix(AsciiPrefix(bytes));
    if (bytes.empty()) break;
    const Utf8Step step = DecodeUtf8(bytes);
    if (step.length == 0) {
      held_ = bytes.copy(character_, sizeof character_);
      break;
    }
    if (!step.valid) return false;
    bytes.remove_prefix(step.length);
  }
  return true;
}

}  // namespace sandbar::wire
