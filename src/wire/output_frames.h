// application/vnd.sandbar.output: a command's output as frames, byte for byte. No I/O, any thread; fuzzed.
//
//   [u8 kind][u32 length, big endian][payload]
//
// The first frame is the command as it was when the stream began, the last one the command with its exit code, or an
// error. The position in the output is the number of bytes in the frames kStdout and kStderr, plus what the gaps say.
//
//   send(OutputFrame(OutputKind::kStdout, bytes));
//
//   OutputFrames frames;
//   SB_TRYV(frames.Feed(piece));
//   while (auto frame = frames.Next()) use(frame->kind, frame->payload);
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbar::wire {

inline constexpr std::string_view kOutputContentType = "application/vnd.sandbar.output";
inline constexpr size_t kMaxOutputPayload = 1 << 20;

enum class OutputKind : uint8_t {
  kKeepAlive = 0,  // no payload
  kStdout = 1,
  kStderr = 2,
  kGap = 3,      // u64, big endian: so many bytes of the output are missing here
  kCommand = 4,  // JSON
  kError = 5,    // JSON: {"code","message"}; the stream ends
};

// A payload of stdout or stderr that is longer than kMaxOutputPayload becomes several frames. Other payloads may not
// be.
std::string OutputFrame(OutputKind kind, std::string_view payload);
std::string GapFrame(uint64_t missing);

class OutputFrames {
 public:
  struct Frame {
    OutputKind kind = OutputKind::kKeepAlive;
    std::string payload;
    uint64_t missing = 0;  // of a gap
  };
  // Takes bytes in pieces of any size. kProtocol: a kind that is not known, or a length that no frame of that kind has.
  // After an error the decoder takes nothing more.
  Result<> Feed(std::string_view bytes);
  // The next complete frame.
  std::optional<Frame> Next();
  // Whether the stream stopped inside a frame.
  bool incomplete() const { return !head_.empty() || want_ > 0; }

 private:
  Result<> TakeHead();
  void Complete();

  std::string head_;  // of the frame that is being read, until it is complete
  Frame frame_;
  size_t want_ = 0;  // payload bytes that are missing
  std::deque<Frame> ready_;
  bool broken_ = false;
};

}  // namespace sandbar::wire
