#include "guest/spool.h"

#include <algorithm>

namespace sandbar::guest {
namespace {

// Small enough that trimming by whole chunks is fine-grained, large enough that bookkeeping does not matter.
constexpr size_t kChunk = 32 << 10;
constexpr size_t kOverhead = 96;

}  // namespace

size_t Spool::CostOf(const Chunk& c) {
  return c.bytes.size() + kOverhead;
}

void Spool::Append(uint8_t stream, std::string_view bytes) {
  Chunks& chunks = gap_ > 0 ? tail_ : head_;
  while (!bytes.empty()) {
    if (chunks.empty() || chunks.back().stream != stream || chunks.back().bytes.size() >= kChunk) {
      chunks.push_back(Chunk{end_, stream, {}});
      cost_ += kOverhead;
      if (gap_ == 0) head_cost_ += kOverhead;
    }
    auto part = bytes.substr(0, kChunk - chunks.back().bytes.size());
    chunks.back().bytes.append(part);
    bytes.remove_prefix(part.size());
    end_ += part.size();
    cost_ += part.size();
    if (gap_ == 0) head_cost_ += part.size();
  }
}

bool Spool::Peek(size_t max, Piece& out) const {
  if (sent_ >= end_) return false;
  out = Piece{};
  out.offset = sent_;
  if (gap_ > 0 && sent_ >= gap_at_ && sent_ < gap_at_ + gap_) {
    out.gap = gap_at_ + gap_ - sent_;
    return true;
  }
  const Chunks& chunks = gap_ > 0 && sent_ >= gap_at_ + gap_ ? tail_ : head_;
  auto it =
      std::upper_bound(chunks.begin(), chunks.end(), sent_, [](uint64_t at, const Chunk& c) { return at < c.offset; });
  --it;  // the chunk that holds sent_: offsets ascend without holes inside one deque
  out.stream = it->stream;
  out.bytes = std::string_view(it->bytes).substr(sent_ - it->offset, max);
  return true;
}

bool Spool::Ack(uint64_t offset) {
  if (offset > sent_) return false;
  if (offset <= acked_) return true;
  acked_ = offset;
  size_t before = cost_;
  AckChunks(head_);
  head_cost_ -= before - cost_;
  if (gap_ == 0 || acked_ < gap_at_) return true;
  uint64_t gap_end = gap_at_ + gap_;
  gap_at_ = std::min(acked_, gap_end);
  gap_ = gap_end - gap_at_;
  if (gap_ > 0) return true;
  AckChunks(tail_);
  head_.swap(tail_);
  head_cost_ = cost_;
  return true;
}

void Spool::AckChunks(Chunks& chunks) {
  while (!chunks.empty() && chunks.front().offset < acked_) {
    Chunk& c = chunks.front();
    uint64_t gone = acked_ - c.offset;
    if (gone < c.bytes.size()) {
      c.bytes.erase(0, gone);
      c.offset = acked_;
      cost_ -= gone;
      return;
    }
    cost_ -= CostOf(c);
    chunks.pop_front();
  }
}

void Spool::Trim(size_t max) {
  if (cost_ <= max) return;
  if (gap_ == 0) gap_at_ = end_;
  // Everything past the head's half becomes the tail, so that the newest bytes are what survives.
  while (head_cost_ > max / 2 && !head_.empty()) {
    Chunk& last = head_.back();
    head_cost_ -= CostOf(last);
    gap_at_ = last.offset;
    if (gap_ == 0) {
      tail_.push_front(std::move(last));
    } else {
      gap_ += last.bytes.size();
      cost_ -= CostOf(last);
    }
    head_.pop_back();
  }
  while (cost_ > max && !tail_.empty()) {
    gap_ += tail_.front().bytes.size();
    cost_ -= CostOf(tail_.front());
    tail_.pop_front();
  }
}

}  // namespace sandbar::guest
