// The reader of trees of files: no input may crash it, and no entry may have a name that leaves the target directory.
#include "wire/tree.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

using sandbar::Result;
using sandbar::wire::TreeEntry;
using sandbar::wire::TreeKind;

bool Escapes(const std::string& path) {
  std::string padded = "/" + path + "/";
  return path.starts_with('/') || padded.find("/../") != std::string::npos || padded.find("/./") != std::string::npos ||
         path.find('\0') != std::string::npos;
}

class Sink : public sandbar::wire::TreeSink {
 public:
  Result<> OnEntry(const TreeEntry& entry) override {
    if (open_ || Escapes(entry.path) || entry.mode > 07777 || entry.mtime_ns >= 1'000'000'000) std::abort();
    if (entry.path.empty() && entry.kind != TreeKind::kDirectory) std::abort();
    if (entry.kind == TreeKind::kHardLink && (entry.target.empty() || Escapes(entry.target))) std::abort();
    open_ = entry.kind == TreeKind::kFile;
    return {};
  }
  Result<> OnPiece(uint64_t offset, std::string_view bytes) override {
    if (!open_ || bytes.empty() || offset > sandbar::wire::kMaxTreeFile) std::abort();
    return {};
  }
  Result<> OnFileEnd(uint64_t size) override {
    if (!open_ || size > sandbar::wire::kMaxTreeFile) std::abort();
    open_ = false;
    return {};
  }

 private:
  bool open_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  Sink sink;
  sandbar::wire::TreeReader reader(&sink);
  // In two parts: what was taken of the first must not be looked at again.
  const size_t cut = size / 2;
  if (reader.Feed(input.substr(0, cut)) && reader.Feed(input.substr(cut))) (void)reader.Finish();
  return 0;
}
