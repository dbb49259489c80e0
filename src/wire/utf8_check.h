// Checks UTF-8 that comes in pieces of any size. No I/O, any thread; a piece may end inside a character.
//
//   Utf8Check check;
//   if (!check.Feed(piece)) …        // invalid, whatever follows
//   if (!check.complete()) …         // at the end: the last character is cut
#pragma once

#include <cstddef>
#include <string_view>

namespace sandbar::wire {

class Utf8Check {
 public:
  // False: the text is invalid whatever follows. The caller does not go on after that.
  bool Feed(std::string_view bytes);
  // No character is cut at the end of what was fed.
  bool complete() const { return held_ == 0; }

 private:
  char character_[4] = {};  // the beginning of a character that is not complete yet
  size_t held_ = 0;
};

}  // namespace sandbar::wire
