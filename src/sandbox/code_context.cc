#include "sandbox/code_context.h"

#include <algorithm>
#include <utility>

#include "base/ids.h"

namespace sandbar::sandbox {
namespace {

constexpr size_t kMaxLine = 8 << 20;
constexpr size_t kMaxBetween = 64 << 10;

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

void CodeContext::Begin(std::shared_ptr<CodeCell> next) {
  cell = std::move(next);
  for (uint8_t stream : {1, 2}) cell->Output(stream, std::exchange(between_[stream - 1], {}));
}

void CodeContext::Forget() {
  if (cell && !spoke_) cell->Output(2, startup_);
  startup_.clear();
  for (std::string& text : between_) text.clear();
  command.clear();
  line_.clear();
  skipping_ = false;
  received_ = 0;
  spoke_ = false;
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
    spoke_ = true;
    Channel(bytes);
  } else if (!spoke_ && stream == 2 && spec.language == CodeLanguage::kBash) {
    startup_ += bytes.substr(0, kMaxBetween - std::min(kMaxBetween, startup_.size()));
  } else if (cell) {
    cell->Output(stream, bytes);
  } else {
    std::string& kept = between_[stream == 2 ? 1 : 0];
    kept += bytes;
    if (kept.size() > 2 * kMaxBetween) kept.erase(0, kept.size() - kMaxBetween);
  }
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
