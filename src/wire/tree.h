// A tree of files as bytes: every entry with owner, mode, time, attributes, links and holes, and what was deleted.
// Written by the agent of one machine, read by the agent of another; no fds, no clock. The bytes come from anybody.
//
//   stream  = entry… end;  entry = u32 length, fields;  a file's entry is followed by its pieces
//   piece   = u64 offset, u32 length, bytes;  length 0 ends the file, and offset is its size
//
// Reader: push-style, the sink is called in order, the first error is final.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sandbar::wire {

inline constexpr size_t kMaxTreePath = 4095;
inline constexpr size_t kMaxTreePiece = 1 << 20;
inline constexpr size_t kMaxTreeEntry = 1 << 20;
inline constexpr uint64_t kMaxTreeFile = 1ULL << 44;

enum class TreeKind : uint8_t { kEnd, kDirectory, kFile, kSymlink, kHardLink, kFifo, kSocket, kDeleted };

struct TreeEntry {
  TreeKind kind = TreeKind::kEnd;
  std::string path;    // relative, no empty, "." or ".." parts; "" only for the top directory itself
  bool fresh = false;  // a directory: nothing of what was there before stays
  std::string target;  // of a symlink: its text; of a hard link: the path of an earlier file
  uint32_t mode = 0;   // permission bits, with set-id and sticky: 07777 at most
  uint32_t uid = 0, gid = 0;
  int64_t mtime_s = 0;
  uint32_t mtime_ns = 0;
  std::vector<std::pair<std::string, std::string>> attributes;
};

class TreeSink {
 public:
  virtual ~TreeSink() = default;
  virtual Result<> OnEntry(const TreeEntry& entry) = 0;
  virtual Result<> OnPiece(uint64_t offset, std::string_view bytes) = 0;  // of the file begun last
  virtual Result<> OnFileEnd(uint64_t size) = 0;
};

class TreeReader {
 public:
  explicit TreeReader(TreeSink* sink) : sink_(sink) {}  // outlives the reader
  Result<> Feed(std::string_view bytes);
  // Fails on a stream that was cut off.
  Result<> Finish() const;

 private:
  // How many bytes were taken; 0: more are needed.
  Result<size_t> Entry(std::string_view bytes);
  Result<size_t> Piece(std::string_view bytes);

  TreeSink* sink_;
  std::string buffer_;
  bool in_file_ = false;
  bool ended_ = false;
};

std::string EncodeTreeEntry(const TreeEntry& entry);
std::string EncodeTreePiece(uint64_t offset, std::string_view bytes);

}  // namespace sandbar::wire
