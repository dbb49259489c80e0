#include "os/overlay_view.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include <cstddef>

namespace sandbar::os {
namespace {

Path Split(std::string_view text) {
  Path out;
  while (!text.empty()) {
    size_t slash = text.find('/');
    if (slash != 0) out.emplace_back(text.substr(0, slash));
    text.remove_prefix(slash == std::string_view::npos ? text.size() : slash + 1);
  }
  return out;
}

std::string Xattr(int fd, const char* name) {
  std::string value(4096, '\0');
  ssize_t n = ::fgetxattr(fd, name, value.data(), value.size());
  value.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return value;
}

// One layer's answer for a path: its directory, if it has one; where lower layers continue, and whether they do.
struct Found {
  Fd dir;
  bool stop = false;
  Path next;
};

Found LookInLayer(int layer, const Path& path) {
  Found found;
  found.next = path;
  Fd at(::openat(layer, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (size_t i = 0; i < path.size(); ++i) {
    struct stat st{};
    if (::fstatat(at.get(), path[i].c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return found;
    if (!S_ISDIR(st.st_mode)) {
      found.stop = true;
      return found;
    }
    at = OpenDirAt(at.get(), path[i]);
    if (!at) return found;
    if (Xattr(at.get(), kOpaque) == "y") {
      found.stop = true;
      continue;
    }
    std::string redirect = Xattr(at.get(), kRedirect);
    if (redirect.empty()) continue;
    // A new directory is opaque, but what was moved into it may come from below.
    if (redirect.front() == '/') found.stop = false;
    // Where this component stands in the path as redirected so far.
    auto place = found.next.end() - static_cast<std::ptrdiff_t>(path.size() - i);
    Path moved = redirect.front() == '/' ? Split(redirect) : Path(found.next.begin(), place);
    if (redirect.front() != '/') moved.push_back(redirect);
    moved.insert(moved.end(), path.begin() + static_cast<std::ptrdiff_t>(i) + 1, path.end());
    found.next = std::move(moved);
  }
  found.dir = std::move(at);
  return found;
}

}  // namespace

std::string Join(const Path& path) {
  std::string out;
  for (const auto& part : path) out += "/" + part;
  return out.empty() ? "/" : out;
}

bool IsWhiteout(const struct stat& st) {
  return S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0);
}

Fd OpenDirAt(int dir, const std::string& name) {
  return Fd(::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
}

Merged LookUp(const std::vector<Fd>& layers, const Path& path) {
  Merged merged;
  merged.below = path;
  for (size_t i = 0; i < layers.size(); ++i) {
    Found found = LookInLayer(layers[i].get(), merged.below);
    if (found.dir) merged.parts.emplace_back(i, std::move(found.dir));
    merged.below = std::move(found.next);
    if (found.stop) {
      merged.opaque = true;
      break;
    }
  }
  return merged;
}

}  // namespace sandbar::os
