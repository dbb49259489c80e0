#include "layer_scanner/names.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "layer_scanner/text.h"

namespace sandbar::layer_scanner {
namespace {

struct Closer {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

}  // namespace

Result<> NameList::Read(int dir, size_t most) {
  const int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  std::unique_ptr<DIR, Closer> d(copy < 0 ? nullptr : ::fdopendir(copy));
  if (!d) {
    const int error = errno;
    if (copy >= 0) ::close(copy);
    return FailErrno("read directory", error);
  }
  errno = 0;
  while (const dirent* e = ::readdir(d.get())) {
    const std::string_view name = e->d_name;
    if (name == "." || name == "..") continue;
    at_.push_back(static_cast<uint32_t>(text_.size()));
    text_ += name;
    text_ += '\0';
    if (bytes() > most) return Fail(Code::kTooLarge, "a directory has too many names");
  }
  if (errno != 0) return FailErrno("read directory");
  std::ranges::sort(at_, [this](uint32_t a, uint32_t b) { return EscapedLess(text_.c_str() + a, text_.c_str() + b); });
  return {};
}

}  // namespace sandbar::layer_scanner
