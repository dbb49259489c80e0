// Reads one layer entry by entry, in the order of a manifest. A guest wrote the tree. So the scanner opens everything
// by directory descriptor and follows no link. Depth, memory and work are bounded: holes are not read, and a file with
// several names is read once. One thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "crypto/sha256_stream.h"

namespace sandbar::layer_scanner {

struct Entry {
  std::string path;   // escaped, from "/"
  std::string rest;   // type, mode, owner, size, time, digest of the content, link target, attributes
  std::string error;  // it cannot be read: why
};

// What goes beyond is kTooLarge, and says nothing against the layer.
struct ScanLimits {
  uint64_t read_bytes = 1ULL << 40;
  size_t name_bytes = 128 << 20;  // of all names of a directory and of those that it lies in
  size_t links = 2'000'000;       // files with names that are still to come
  int64_t until_ms = INT64_MAX;   // by CLOCK_BOOTTIME

  // As much as the layer's disk holds, and an hour.
  static Result<ScanLimits> Of(int layer);
};

class Tree {
 public:
  using Sink = std::function<Result<>(const Entry&)>;
  Tree(int root, ScanLimits limits, Sink sink) : root_(root), limits_(limits), sink_(std::move(sink)) {}
  Result<> Scan();
  uint64_t bytes() const { return bytes_; }  // on disk, a file with two names once
  uint64_t files() const { return files_; }

 private:
  Result<> Directory(int dir, const std::string& path, size_t depth);
  Result<> Child(int dir, const std::string& name, const std::string& path, size_t depth);
  Result<std::string> File(int dir, const std::string& name, const struct stat& st);
  struct Digest {
    crypto::Sha256Stream::Bytes bytes{};
    bool sparse = false;
  };
  Result<Digest> Content(int fd, const struct stat& st);
  Result<Digest> DigestOf(int fd, const struct stat& st);

  int root_;
  ScanLimits limits_;
  std::string buffer_;  // of the file being read
  Sink sink_;
  uint64_t bytes_ = 0, files_ = 0, read_ = 0;
  size_t names_ = 0;  // bytes, of the directories that are being scanned
  // Not more than the digest: a guest can have millions of them.
  struct Seen {
    Digest digest;
    uint32_t left = 0;  // names still to come
  };
  std::unordered_map<ino_t, Seen> links_;
};

}  // namespace sandbar::layer_scanner
