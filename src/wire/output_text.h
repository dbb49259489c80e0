// Bytes of a command's output -> text for JSON, and whether bytes had to be replaced on the way. One per stream.
// No I/O, any thread.
//
//   OutputText text;
//   OutputText::Piece piece = text.Feed(bytes);     // piece.replaced: some of them are U+FFFD now
#pragma once

#include <string>
#include <string_view>

#include "wire/ndjson.h"

namespace sandbar::wire {

class OutputText {
 public:
  struct Piece {
    std::string text;
    bool replaced = false;
  };
  // A character that is not complete yet comes with a later piece.
  Piece Feed(std::string_view bytes);
  // At the end of the stream.
  Piece Flush();

 private:
  Utf8Stream decode_;
  std::string rest_;  // bytes that were fed and have not come out yet
};

}  // namespace sandbar::wire
