// One output stream of a cell, bounded: the first bytes pass at once, of the rest the last ones are kept until Flush,
// and what lay between is counted. Text comes out as valid UTF-8; a piece says when bytes had to be replaced for that.
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
  // What was held back. Later bytes are held back too, until the next Flush.
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
