// Server-sent events: bytes in pieces of any size -> events. No I/O, no clock, any thread; fuzzed.
//
//   SseParser sse;
//   SB_TRY(auto events, sse.Feed(piece));         // every event that became complete
//   for (const SseEvent& e : events) use(e.name, e.data);
//
// Lines end in LF, CR or CRLF. Comments, `id` and `retry` are skipped. An event without data is dropped. An event that
// is unfinished when the stream ends is dropped too: the caller notices the missing last event.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbar::wire {

struct SseEvent {
  std::string name;  // "message" unless named
  std::string data;  // its data lines, joined by LF
};

class SseParser {
 public:
  // One event may have that many bytes; more is kTooLarge.
  explicit SseParser(size_t max_event = 16 << 20) : max_event_(max_event) {}
  Result<std::vector<SseEvent>> Feed(std::string_view bytes);

 private:
  void Line(std::vector<SseEvent>* out);

  size_t max_event_;
  std::string line_, name_, data_;
  bool has_data_ = false;
  bool after_cr_ = false;   // a following LF belongs to that line end
  bool first_line_ = true;  // may begin with a byte order mark
};

}  // namespace sandbar::wire
