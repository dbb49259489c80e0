// The tar reader: no input may crash it, and no entry may have a name that leaves the target directory.
#include "wire/tar.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

using sandbar::Result;
using sandbar::wire::TarEntry;

class Sink : public sandbar::wire::TarSink {
 public:
  Result<> OnEntry(const TarEntry& entry) override {
    if (open_) std::abort();
    open_ = true;
    left_ = entry.size;
    std::string padded = "/" + entry.name + "/";
    bool escapes = entry.name.starts_with('/') || padded.find("/../") != std::string::npos ||
                   entry.name.find('\0') != std::string::npos || entry.name.size() > sandbar::wire::kMaxTarName;
    bool link = entry.kind == TarEntry::Kind::kSymlink;
    if (link && (entry.target.empty() || entry.target.contains('\0') || entry.size != 0)) std::abort();
    if (escapes || entry.mode > 0777 || (entry.name.empty() && !entry.directory)) std::abort();
    return {};
  }
  Result<> OnData(std::string_view bytes) override {
    if (!open_ || bytes.empty() || bytes.size() > left_) std::abort();
    left_ -= bytes.size();
    return {};
  }
  Result<> OnEntryEnd() override {
    if (!open_ || left_ != 0) std::abort();
    open_ = false;
    return {};
  }

 private:
  bool open_ = false;
  uint64_t left_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  Sink sink;
  sandbar::wire::TarTakes takes;
  takes.symlinks = (data[0] & 1) != 0;
  takes.others = (data[0] & 2) != 0;
  sandbar::wire::TarReader reader(&sink, takes);
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  size_t step = 1 + data[0] * 8;
  for (size_t at = 0; at < bytes.size(); at += step) {
    if (!reader.Feed(bytes.substr(at, step))) return 0;
  }
  [[maybe_unused]] auto done = reader.Finish();
  return 0;
}
