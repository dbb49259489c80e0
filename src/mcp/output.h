// What a program printed, cut to what a model should read: the first and the last part of each stream with the gap
// stated. Bounded in memory however much comes. Values only, any thread.
//
//   Output output(after);
//   output.Add(chunk);                       // as a LogReader gives them
//   std::string text = output.Render(30'000);  // "stdout:\n…\nstderr:\n…"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sandbox/commands/commands.h"

namespace sandbar::mcp {

// Characters of a result's text, about: what clients show to a model without cutting it themselves.
inline constexpr size_t kTextCap = 30'000;

// The head and the tail of a stream of bytes of any length.
class HeadTail {
 public:
  void Add(std::string_view bytes);
  void Skip(uint64_t bytes);  // that many are missing here
  uint64_t total() const { return total_; }
  // As valid UTF-8, about `cap` bytes of it. The tail gets the larger part: that is where errors are.
  std::string Render(size_t cap) const;

 private:
  std::string head_, tail_;
  uint64_t total_ = 0;
  bool head_closed_ = false;
};

class Output {
 public:
  // Leaves out the first `after` bytes of the log, counted over both streams.
  explicit Output(uint64_t after) : after_(after) {}
  void Add(const sandbox::LogChunk& chunk);
  uint64_t position() const { return position_; }  // in the log, after what was added
  bool empty() const { return out_.total() == 0 && err_.total() == 0; }
  std::string Render(size_t cap) const;

 private:
  uint64_t after_ = 0;
  uint64_t position_ = 0;
  HeadTail out_, err_;
};

// `text` cut to about `cap` bytes, head and tail with the gap stated; always valid UTF-8.
std::string CutText(std::string_view text, size_t cap);
// "1.2 s", "340 ms", "2 min 5 s".
std::string Elapsed(int64_t ms);

}  // namespace sandbar::mcp
