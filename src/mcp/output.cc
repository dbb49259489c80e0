#include "mcp/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "wire/ndjson.h"

namespace sandbar::mcp {
namespace {

std::string ToUtf8(std::string_view bytes) {
  wire::Utf8Stream stream;
  std::string text = stream.Feed(bytes);
  return text + stream.Flush();
}

bool Continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Without the part of a character that a cut left at the end, or at the start. At most three bytes go.
std::string_view WholeEnd(std::string_view s) {
  size_t n = 0;
  while (n < 3 && n < s.size() && Continues(s[s.size() - 1 - n])) ++n;
  const bool lead = n < s.size() && (static_cast<unsigned char>(s[s.size() - 1 - n]) & 0xC0) == 0xC0;
  return lead ? s.substr(0, s.size() - 1 - n) : s;
}

std::string_view WholeStart(std::string_view s) {
  for (int i = 0; i < 3 && !s.empty() && Continues(s.front()); ++i) s.remove_prefix(1);
  return s;
}

std::string Gap(uint64_t bytes) {
  return fmt::format("\n[… {} bytes left out; write long output to a file and use read_file …]\n", bytes);
}

}  // namespace

void HeadTail::Add(std::string_view bytes) {
  total_ += bytes.size();
  if (!head_closed_) {
    size_t n = std::min(bytes.size(), kTextCap - head_.size());
    head_.append(bytes.substr(0, n));
    bytes.remove_prefix(n);
    head_closed_ = head_.size() == kTextCap;
  }
  if (bytes.size() > kTextCap) bytes.remove_prefix(bytes.size() - kTextCap);
  tail_.append(bytes);
  // Cut now and then, not at every byte.
  if (tail_.size() > 2 * kTextCap) tail_.erase(0, tail_.size() - kTextCap);
}

void HeadTail::Skip(uint64_t bytes) {
  total_ += bytes;
  head_closed_ = true;
  tail_.clear();
}

std::string HeadTail::Render(size_t cap) const {
  const uint64_t missing = total_ - head_.size() - tail_.size();
  if (missing == 0 && total_ <= cap) return ToUtf8(head_ + tail_);
  // What is there as one text, of which the ends are taken; the two parts may overlap what was kept of each other.
  const size_t head_cap = cap * 2 / 5;
  const size_t tail_cap = cap - head_cap;
  std::string_view head = std::string_view(head_).substr(0, head_cap);
  std::string joined;
  std::string_view tail = tail_;
  if (missing == 0 && tail.size() < tail_cap) {
    joined = head_ + tail_;
    tail = joined;
  }
  if (tail.size() > tail_cap) tail.remove_prefix(tail.size() - tail_cap);
  head = WholeEnd(head);
  tail = WholeStart(tail);
  return ToUtf8(head) + Gap(total_ - head.size() - tail.size()) + ToUtf8(tail);
}

void Output::Add(const sandbox::LogChunk& chunk) {
  HeadTail& stream = chunk.stream == 2 ? err_ : out_;
  if (chunk.gap > 0) {
    position_ += chunk.gap;
    if (position_ > after_) stream.Skip(std::min(chunk.gap, position_ - after_));
  }
  const uint64_t skipped = position_ < after_ ? std::min<uint64_t>(chunk.bytes.size(), after_ - position_) : 0;
  position_ += chunk.bytes.size();
  stream.Add(std::string_view(chunk.bytes).substr(skipped));
}

std::string Output::Render(size_t cap) const {
  // What one stream does not need, the other one may have.
  const uint64_t half = cap / 2;
  const size_t out_cap =
      err_.total() < half ? cap - err_.total() : std::max<uint64_t>(half, cap - std::min<uint64_t>(cap, err_.total()));
  const size_t err_cap = cap - std::min<uint64_t>(out_.total(), out_cap);
  std::string text;
  for (auto [name, stream, limit] : {std::tuple("stdout", &out_, out_cap), std::tuple("stderr", &err_, err_cap)}) {
    if (stream->total() == 0) continue;
    if (!text.empty()) text += '\n';
    text += fmt::format("{}:\n{}", name, stream->Render(limit));
    while (text.ends_with('\n')) text.pop_back();
  }
  return text;
}

std::string CutText(std::string_view text, size_t cap) {
  HeadTail cut;
  cut.Add(text);
  return cut.Render(cap);
}

std::string Elapsed(int64_t ms) {
  if (ms < 1000) return fmt::format("{} ms", ms);
  if (ms < 60'000) return fmt::format("{}.{} s", ms / 1000, ms % 1000 / 100);
  return fmt::format("{} min {} s", ms / 60'000, ms % 60'000 / 1000);
}

}  // namespace sandbar::mcp
