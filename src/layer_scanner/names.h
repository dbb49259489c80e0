// The names of one directory in the order of a manifest. A guest can make millions of names of 255 bytes. So they are
// stored in one buffer with a size limit. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbar::layer_scanner {

class NameList {
 public:
  // kTooLarge when they take more memory than this; kIo when the directory cannot be read.
  Result<> Read(int dir, size_t most);
  size_t size() const { return at_.size(); }
  size_t bytes() const { return text_.capacity() + at_.capacity() * sizeof(uint32_t); }
  std::string_view operator[](size_t i) const { return text_.c_str() + at_[i]; }

 private:
  std::string text_;  // each with its zero
  std::vector<uint32_t> at_;
};

}  // namespace sandbar::layer_scanner
