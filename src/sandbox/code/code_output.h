// One bounded output stream of a cell: the first bytes pass at once, the last bytes are kept until Flush, and the bytes
// between them are dropped and counted. Text comes out as valid UTF-8; a piece says when bytes had to be replaced.
// Single owner.
//
//   CappedOutput out;
//   emit(out.Feed(bytes));
//   auto rest = out.Flush();  // rest.dropped bytes are missing before rest.piece.text
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "wire/output_text.h"

namespace sandbar::sandbox {

class CappedOutput {
 public:
  static constexpr size_t kHead = 256 << 10;
  static constexpr size_t kTail = 256 << 10;

  using Piece = wire::OutputText::Piece;
  struct Rest {
    uint64_t dropped = 0;
    Piece piece;
  };
  Piece Feed(std::string_view bytes);
  // Bytes that were lost on the way here.
  void Lose(uint64_t bytes);
  // Returns the bytes that were kept. Later bytes are kept too, until the next Flush.
  Rest Flush();
  uint64_t dropped() const { return all_dropped_; }

 private:
  void Shrink();

  size_t passed_ = 0;
  uint64_t dropped_ = 0;  // since the last Flush
  uint64_t all_dropped_ = 0;
  std::string tail_;
  wire::OutputText head_text_;
};

}  // namespace sandbar::sandbox
