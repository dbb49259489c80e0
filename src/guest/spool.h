// The unacknowledged output of one command: bytes of stdout and stderr in the order they were read, with absolute
// offsets over both. Pure memory; one owner, one thread.
//
// Append → Peek/Advance (sending) → Ack (forget). Rewind() starts sending again at the last Ack, for a new connection.
// Trim() drops the middle and leaves one Gap in its place. cost() counts bookkeeping too, so that a command that
// alternates one byte on each pipe cannot take many times its share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace sandbar::guest {

class Spool {
 public:
  struct Piece {
    uint64_t offset = 0;
    uint8_t stream = 1;
    std::string_view bytes;  // valid until the next change of the spool
    uint64_t gap = 0;        // > 0: this many bytes are lost here, and `bytes` is empty
  };

  void Append(uint8_t stream, std::string_view bytes);
  // The next unsent piece, at most `max` bytes; false when all was sent.
  bool Peek(size_t max, Piece& out) const;
  void Advance(uint64_t n) { sent_ += n; }
  void Rewind() { sent_ = acked_; }
  // Forgets everything before `offset`; false when that is beyond what was sent.
  bool Ack(uint64_t offset);
  // Drops from the middle until cost() <= max: the first half of the budget stays, then a gap, then the newest bytes.
  void Trim(size_t max);

  uint64_t end() const { return end_; }
  uint64_t acked() const { return acked_; }
  uint64_t sent() const { return sent_; }
  size_t cost() const { return cost_; }

 private:
  struct Chunk {
    uint64_t offset = 0;
    uint8_t stream = 1;
    std::string bytes;
  };
  using Chunks = std::deque<Chunk>;
  static size_t CostOf(const Chunk& c);
  void AckChunks(Chunks& chunks);

  // In order of offsets: head_, then the gap, then tail_ (which is empty while there is no gap).
  Chunks head_;
  uint64_t gap_at_ = 0;
  uint64_t gap_ = 0;
  Chunks tail_;
  uint64_t acked_ = 0;
  uint64_t sent_ = 0;
  uint64_t end_ = 0;
  size_t head_cost_ = 0;
  size_t cost_ = 0;
};

}  // namespace sandbar::guest
