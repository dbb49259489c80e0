#include "sandbox/code/code_output.h"

#include <algorithm>

namespace sandbar::sandbox {

namespace {

void Add(const CappedOutput::Piece& piece, CappedOutput::Piece* to) {
  to->text += piece.text;
  to->replaced = to->replaced || piece.replaced;
}

}  // namespace

CappedOutput::Piece CappedOutput::Feed(std::string_view bytes) {
  Piece piece;
  if (dropped_ == 0 && tail_.empty() && passed_ < kHead) {
    const size_t n = std::min(bytes.size(), kHead - passed_);
    passed_ += n;
    piece = head_text_.Feed(bytes.substr(0, n));
    bytes.remove_prefix(n);
  }
  tail_ += bytes;
  // Not at every piece: erasing at the front moves the rest.
  if (tail_.size() > 2 * kTail) Shrink();
  return piece;
}

void CappedOutput::Shrink() {
  if (tail_.size() <= kTail) return;
  size_t cut = tail_.size() - kTail;
  // Not inside a character.
  while (cut < tail_.size() && (static_cast<unsigned char>(tail_[cut]) & 0xC0) == 0x80) ++cut;
  tail_.erase(0, cut);
  dropped_ += cut;
  all_dropped_ += cut;
}

void CappedOutput::Lose(uint64_t bytes) {
  // What is kept after this would be text before a gap that is said to be in front of it.
  dropped_ += bytes + tail_.size();
  all_dropped_ += bytes + tail_.size();
  tail_.clear();
}

CappedOutput::Rest CappedOutput::Flush() {
  Shrink();
  Rest rest;
  rest.dropped = dropped_;
  // A character may lie across the end of the head; after a gap its second half is not there.
  if (dropped_ == 0) {
    Add(head_text_.Feed(tail_), &rest.piece);
    Add(head_text_.Flush(), &rest.piece);
  } else {
    // The gap is the reason for a U+FFFD at its edge, and the gap is named.
    rest.piece.text = head_text_.Flush().text;
    head_text_ = {};
    wire::OutputText text;
    Add(text.Feed(tail_), &rest.piece);
    Add(text.Flush(), &rest.piece);
  }
  dropped_ = 0;
  tail_.clear();
  passed_ = std::max(passed_, kHead);
  return rest;
}

}  // namespace sandbar::sandbox
