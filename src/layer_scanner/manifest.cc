#include "layer_scanner/manifest.h"

#include <unistd.h>

#include <optional>

#include "base/files.h"
#include "crypto/sha256_stream.h"
#include "layer_scanner/text.h"
#include "os/openat.h"

namespace sandbar::layer_scanner {
namespace {

constexpr size_t kBuffer = 256 << 10;
constexpr size_t kMaxLine = 8 << 20;

// The lines of a manifest on disk.
class Lines {
 public:
  explicit Lines(int fd) : fd_(fd) {}
  Result<std::optional<Entry>> Next() {
    size_t end = 0;
    while ((end = buffer_.find('\n', at_)) == std::string::npos) {
      SB_TRY(bool more, Fill());
      if (more) continue;
      if (at_ < buffer_.size()) return Fail(Code::kIo, "the manifest ends in the middle of a line");
      return std::nullopt;
    }
    std::string_view line = std::string_view(buffer_).substr(at_, end - at_);
    size_t space = line.find(' ');
    Entry entry;
    entry.path = line.substr(0, space);
    if (space != std::string_view::npos) entry.rest = line.substr(space + 1);
    at_ = end + 1;
    return entry;
  }
  std::string Digest() { return digest_.Hex(); }

 private:
  Result<bool> Fill() {
    buffer_.erase(0, at_);
    at_ = 0;
    if (buffer_.size() > kMaxLine) return Fail(Code::kIo, "the manifest has a line without an end");
    size_t had = buffer_.size();
    buffer_.resize(had + kBuffer);
    ssize_t n = ::read(fd_, buffer_.data() + had, kBuffer);
    buffer_.resize(had + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n < 0) return FailErrno("read the manifest");
    digest_.Update(std::string_view(buffer_).substr(had));
    return n > 0;
  }

  int fd_;
  std::string buffer_;
  size_t at_ = 0;
  crypto::Sha256Stream digest_;
};

void Note(Report& report, std::string text) {
  if (++report.differences <= kShownDifferences) report.first.push_back(std::move(text));
}

}  // namespace

Result<Report> WriteManifest(int layer, int out, const ScanLimits& limits) {
  // Before: what is still in memory only may yet change how a file is laid out.
  if (::syncfs(layer) != 0) return FailErrno("sync");
  crypto::Sha256Stream digest;
  std::string buffer;
  auto flush = [&]() -> Result<> {
    digest.Update(buffer);
    SB_TRYV(WriteAll(out, buffer));
    buffer.clear();
    return {};
  };
  auto add = [&](const Entry& entry) -> Result<> {
    if (!entry.error.empty()) return Fail(Code::kIo, entry.path + ": " + entry.error);
    buffer += entry.path + " " + entry.rest + "\n";
    return buffer.size() < kBuffer ? Result<>{} : flush();
  };
  Tree tree(layer, limits, add);
  SB_TRYV(tree.Scan());
  SB_TRYV(flush());
  if (::fsync(out) != 0 || ::syncfs(out) != 0) return FailErrno("sync the manifest");
  Report report;
  report.bytes = tree.bytes();
  report.files = tree.files();
  report.digest = digest.Hex();
  return report;
}

Result<Report> CheckManifest(int layer, int manifest, const ScanLimits& limits) {
  Report report;
  Lines lines(manifest);
  SB_TRY(auto expected, lines.Next());
  auto compare = [&](const Entry& entry) -> Result<> {
    while (expected && PathLess(expected->path, entry.path)) {
      Note(report, "missing " + expected->path);
      SB_TRY(expected, lines.Next());
    }
    const bool known = expected && expected->path == entry.path;
    if (!entry.error.empty()) Note(report, "unreadable " + entry.path);
    if (!known && entry.error.empty()) Note(report, "unknown " + entry.path);
    if (!known) return {};
    if (entry.error.empty() && expected->rest != entry.rest) Note(report, "changed " + entry.path);
    SB_TRY(expected, lines.Next());
    return {};
  };
  Tree tree(layer, limits, compare);
  SB_TRYV(tree.Scan());
  while (expected) {
    Note(report, "missing " + expected->path);
    SB_TRY(expected, lines.Next());
  }
  report.bytes = tree.bytes();
  report.files = tree.files();
  report.digest = lines.Digest();
  return report;
}

}  // namespace sandbar::layer_scanner
