// One layer, entry by entry, in the order of a manifest. The tree was written by a guest: directory fds, no link
// followed, bounded depth, bounded work (holes and further names of one file are not read). One thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/result.h"

namespace sandbar::walker {

struct Entry {
  std::string path;   // escaped, from "/"
  std::string rest;   // type, mode, owner, size, time, digest of the content, link target, attributes
  std::string error;  // it cannot be read: why
};

class Tree {
 public:
  using Sink = std::function<Result<>(const Entry&)>;
  Tree(int root, Sink sink) : root_(root), sink_(std::move(sink)) {}
  Result<> Walk();
  uint64_t bytes() const { return bytes_; }  // on disk, a file with two names once
  uint64_t files() const { return files_; }

 private:
  Result<> Directory(int dir, const std::string& path, size_t depth);
  Result<> Child(int dir, const std::string& name, const std::string& path, size_t depth);
  Result<std::string> File(int dir, const std::string& name, const struct stat& st);
  Result<std::string> Content(int fd, const struct stat& st);

  int root_;
  std::string buffer_;  // of the file being read
  Sink sink_;
  uint64_t bytes_ = 0, files_ = 0, read_ = 0;
  struct Seen {
    std::string text;
    uint64_t left = 0;  // names still to come
  };
  std::map<ino_t, Seen> links_;
};

}  // namespace sandbar::walker
