#include "sandbox/code/code_context.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/ids.h"

namespace sandbar::sandbox {
namespace {

constexpr size_t kMaxLine = 8 << 20;
constexpr size_t kMaxBetween = 64 << 10;

constexpr std::string_view kDriverPrefix = "krn_";

}  // namespace

std::string NewDriverId() {
  return NewId(kDriverPrefix);
}

bool IsDriverId(std::string_view command) {
  return command.starts_with(kDriverPrefix);
}

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

std::string EncodeContexts(const std::vector<KeptContext>& contexts) {
  ByteWriter w;
  w.U32(static_cast<uint32_t>(contexts.size()));
  for (const KeptContext& c : contexts) {
    w.Str(c.id);
    w.U8(static_cast<uint8_t>(c.spec.language));
    w.U8(c.spec.cwd ? 1 : 0);
    w.Str(c.spec.cwd.value_or(""));
    w.U32(static_cast<uint32_t>(c.spec.env.size()));
    for (const auto& [name, value] : c.spec.env) w.Str(name), w.Str(value);
    for (int64_t n : {c.count, c.created_at, c.last_used_at}) w.I64(n);
    w.Str(c.command);
  }
  return w.Take();
}

Result<std::vector<KeptContext>> DecodeContexts(std::string_view text) {
  ByteReader r(text);
  std::vector<KeptContext> out;
  const uint32_t n = r.U32();
  for (uint32_t i = 0; i < n && r.ok(); ++i) {
    KeptContext c;
    c.id = r.Str();
    c.spec.language = static_cast<CodeLanguage>(r.U8() & 3);
    const bool cwd = r.U8() != 0;
    std::string path(r.Str());
    if (cwd) c.spec.cwd = std::move(path);
    const uint32_t variables = r.U32();
    for (uint32_t v = 0; v < variables && r.ok(); ++v) {
      std::string name(r.Str());
      c.spec.env[std::move(name)] = r.Str();
    }
    for (int64_t* number : {&c.count, &c.created_at, &c.last_used_at}) *number = r.I64();
    c.command = r.Str();
    out.push_back(std::move(c));
  }
  if (!r.Done()) return Fail(Code::kIo, "the list of contexts is damaged");
  return out;
}

void CodeContext::TakeOver(const KeptContext& kept, std::string new_command) {
  id = kept.id;
  spec = kept.spec;
  count = kept.count;
  created_at = kept.created_at;
  last_used_at = kept.last_used_at;
  command = std::move(new_command);
  spoke_ = true;
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
