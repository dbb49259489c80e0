#include "wire/output_frames.h"

#include <algorithm>

namespace sandbar::wire {
namespace {

constexpr size_t kHead = 5;

void AppendBigEndian(std::string* out, uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out->push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

uint64_t BigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

bool IsOutput(OutputKind kind) {
  return kind == OutputKind::kStdout || kind == OutputKind::kStderr;
}

void AppendFrame(std::string* out, OutputKind kind, std::string_view payload) {
  out->push_back(static_cast<char>(kind));
  AppendBigEndian(out, payload.size(), 4);
  out->append(payload);
}

}  // namespace

std::string OutputFrame(OutputKind kind, std::string_view payload) {
  SB_CHECK(payload.size() <= kMaxOutputPayload || IsOutput(kind));
  std::string out;
  out.reserve(payload.size() + kHead * (1 + payload.size() / kMaxOutputPayload));
  do {
    const std::string_view piece = payload.substr(0, kMaxOutputPayload);
    AppendFrame(&out, kind, piece);
    payload.remove_prefix(piece.size());
  } while (!payload.empty());
  return out;
}

std::string GapFrame(uint64_t missing) {
  std::string payload;
  AppendBigEndian(&payload, missing, 8);
  return OutputFrame(OutputKind::kGap, payload);
}

Result<> OutputFrames::TakeHead() {
  const auto kind = static_cast<unsigned char>(head_[0]);
  const uint64_t length = BigEndian(std::string_view(head_).substr(1));
  if (kind > static_cast<unsigned char>(OutputKind::kError))
    return Fail(Code::kProtocol, "the output has a frame of the unknown kind " + std::to_string(kind));
  frame_.kind = static_cast<OutputKind>(kind);
  const bool fits = frame_.kind == OutputKind::kGap         ? length == 8
                    : frame_.kind == OutputKind::kKeepAlive ? length == 0
                                                            : length <= kMaxOutputPayload;
  if (!fits) return Fail(Code::kProtocol, "the output has a frame of " + std::to_string(length) + " bytes");
  want_ = length;
  return {};
}

void OutputFrames::Complete() {
  if (frame_.kind == OutputKind::kGap) frame_.missing = BigEndian(frame_.payload);
  ready_.push_back(std::move(frame_));
  frame_ = {};
  head_.clear();
}

Result<> OutputFrames::Feed(std::string_view bytes) {
  if (broken_) return Fail(Code::kProtocol, "the output is not readable any more");
  while (!bytes.empty()) {
    if (head_.size() < kHead) {
      const size_t n = std::min(kHead - head_.size(), bytes.size());
      head_.append(bytes.substr(0, n));
      bytes.remove_prefix(n);
      if (head_.size() < kHead) return {};
      if (auto taken = TakeHead(); !taken) {
        broken_ = true;
        return taken;
      }
    }
    const size_t n = std::min(want_, bytes.size());
    frame_.payload.append(bytes.substr(0, n));
    bytes.remove_prefix(n);
    want_ -= n;
    if (want_ == 0) Complete();
  }
  return {};
}

std::optional<OutputFrames::Frame> OutputFrames::Next() {
  if (ready_.empty()) return std::nullopt;
  std::optional<Frame> frame(std::move(ready_.front()));
  ready_.pop_front();
  return frame;
}

}  // namespace sandbar::wire
