// What file tools do with bytes, without any I/O: lines of a text, images by their first bytes, exact replacement, an
// archive of one file. Pure, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbar::mcp {

inline constexpr size_t kMaxImage = 3 << 20;
inline constexpr uint32_t kMaxImageSide = 8000;

// "image/png" and so on; empty: the bytes do not begin as an image that clients show.
std::string_view ImageType(std::string_view bytes);
// Width and height of a PNG; nullopt when `bytes` is none.
struct ImageSize {
  uint32_t width = 0, height = 0;
};
std::optional<ImageSize> PngSize(std::string_view bytes);
bool LooksBinary(std::string_view bytes);

// Takes lines [offset, offset + limit) of a text that comes in pieces, about `cap` bytes of them at most.
class LineRange {
 public:
  LineRange(uint64_t offset, uint64_t limit, size_t cap) : offset_(offset), limit_(limit), cap_(cap) {}
  // False: nothing more is needed.
  bool Feed(std::string_view bytes);
  // The lines, with a remark when there are more.
  std::string Render() const;

 private:
  uint64_t offset_, limit_;
  size_t cap_;
  uint64_t line_ = 1;  // being read
  std::string text_;
  bool full_ = false;  // the cap was reached inside line_
  bool more_ = false;  // there are lines after the range
  bool any_ = false;
  bool open_ = false;  // line_ has begun
};

struct Replaced {
  std::string text;
  size_t count = 0;
  size_t first_line = 0;  // of the first change, from 1
};
// kBadRequest with the number of occurrences when it is not exactly one (or at least one, for `all`).
Result<Replaced> ReplaceExact(const std::string& text, const std::string& from, const std::string& to, bool all);

// A gzip'd tar of one file, as sandbox::Files takes it. `name` is relative.
std::string ArchiveOf(const std::string& name, uint32_t mode, std::string_view content);

}  // namespace sandbar::mcp
