#include "sandbox/code_output.h"

#include <algorithm>

namespace sandbar::sandbox {

std::string CappedOutput::Feed(std::string_view bytes) {
  std::string text;
  if (dropped_ == 0 && tail_.empty() && passed_ < kHead) {
    const size_t n = std::min(bytes.size(), kHead - passed_);
    passed_ += n;
    text = head_text_.Feed(bytes.substr(0, n));
    bytes.remove_prefix(n);
  }
  tail_ += bytes;
  // Not at every piece: erasing at the front moves the rest.
  if (tail_.size() > 2 * kTail) Shrink();
  return text;
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
    rest.text = head_text_.Feed(tail_);
    rest.text += head_text_.Flush();
  } else {
    rest.text = head_text_.Flush();
    head_text_ = {};
    wire::Utf8Stream text;
    rest.text += text.Feed(tail_);
    rest.text += text.Flush();
  }
  dropped_ = 0;
  tail_.clear();
  passed_ = std::max(passed_, kHead);
  return rest;
}

}  // namespace sandbar::sandbox
