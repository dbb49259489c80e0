#include "sandbox/code_context.h"

#include <algorithm>

#include "base/ids.h"

namespace sandbar::sandbox {
namespace {

constexpr size_t kMaxLine = 8 << 20;

}  // namespace

CodeContextInfo CodeContext::Info() const {
  CodeContextInfo info;
  info.id = id;
  info.language = spec.language;
  if (!command.empty() || starting) info.state = busy() ? "running" : "idle";
  info.execution_count = count;
  info.created_at = created_at;
  info.last_used_at = last_used_at;
  return info;
}

void CodeContext::Forget() {
  command.clear();
  line_.clear();
  skipping_ = false;
  received_ = 0;
  count = 0;
}

bool CodeContext::Take(uint64_t offset, uint8_t stream, std::string_view bytes) {
  if (offset < received_) {
    const uint64_t seen = received_ - offset;
    if (seen >= bytes.size()) return false;
    bytes.remove_prefix(seen);
    offset = received_;
  }
  received_ = offset + bytes.size();
  if (stream == 3) {
    Channel(bytes);
  } else if (cell) {
    cell->Output(stream, bytes);
  }
  // Between cells nobody is there to be told: what a thread or a child prints then is dropped.
  if (!cell || !cell->ended()) return false;
  last_used_at = NowMs();
  const bool leaving = cell->leaving();
  cell.reset();
  return leaving;
}

void CodeContext::Gap(uint64_t offset, uint64_t bytes) {
  if (offset + bytes <= received_) return;
  const uint64_t lost = offset + bytes - std::max(offset, received_);
  received_ = offset + bytes;
  line_.clear();
  skipping_ = true;
  if (cell) cell->Lost(lost);
}

void CodeContext::Channel(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (!skipping_ && line_.size() + piece.size() > kMaxLine) {
      skipping_ = true;
      line_.clear();
    }
    if (!skipping_) line_ += piece;
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    // A line that could not be held is told as one that could not be read.
    if (cell) cell->DriverLine(skipping_ ? std::string_view("?") : std::string_view(line_));
    skipping_ = false;
    line_.clear();
    if (line_.capacity() > (64 << 10)) line_.shrink_to_fit();
  }
}

}  // namespace sandbar::sandbox
