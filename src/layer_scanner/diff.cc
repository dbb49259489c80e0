#include "layer_scanner/diff.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "os/openat.h"
#include "os/overlay_view.h"

namespace sandbar::layer_scanner {
namespace {

constexpr size_t kBuffer = 128 << 10;
constexpr uint64_t kMaxCompared = 16ULL << 30;  // bytes of one comparison

// One name of a merged directory: where it is, and what.
struct Item {
  int dir = -1;
  struct stat st{};
};
using Items = std::map<std::string, Item>;

char TypeOf(const struct stat& st) {
  if (S_ISDIR(st.st_mode)) return 'd';
  if (S_ISREG(st.st_mode)) return 'f';
  if (S_ISLNK(st.st_mode)) return 'l';
  if (S_ISFIFO(st.st_mode)) return 'p';
  return S_ISSOCK(st.st_mode) ? 's' : 'x';
}

uint64_t SizeOf(const struct stat& st) {
  return S_ISREG(st.st_mode) ? static_cast<uint64_t>(st.st_size) : 0;
}

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

Result<Items> Entries(const os::Merged& merged) {
  Items items;
  std::set<std::string> hidden;
  for (const auto& [layer, dir] : merged.parts) {
    SB_TRY(auto names, os::ListDir(dir.get()));
    for (std::string& name : names) {
      if (items.contains(name) || hidden.contains(name)) continue;
      Item item{.dir = dir.get()};
      if (::fstatat(dir.get(), name.c_str(), &item.st, AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("stat an entry");
      if (os::IsWhiteout(item.st)) {
        hidden.insert(std::move(name));
      } else {
        items.emplace(std::move(name), item);
      }
    }
  }
  return items;
}

// Made of the same directories: whatever is below shows the same.
bool SameParts(const os::Merged& a, const os::Merged& b) {
  if (a.parts.size() != b.parts.size() || a.below != b.below) return false;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    struct stat left{}, right{};
    if (::fstat(a.parts[i].second.get(), &left) != 0 || ::fstat(b.parts[i].second.get(), &right) != 0) return false;
    if (!SameFile(left, right)) return false;
  }
  return true;
}

Result<std::string> ReadLink(const Item& item, const std::string& name) {
  std::array<char, 4097> text{};
  ssize_t n = ::readlinkat(item.dir, name.c_str(), text.data(), text.size());
  if (n < 0) return FailErrno("read a link");
  return std::string(text.data(), static_cast<size_t>(n));
}

Fd OpenFile(const Item& item, const std::string& name) {
  return Fd(::openat(item.dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

// Where the next byte that is not in a hole lies; the size when there is none.
off_t NextData(int fd, off_t at, off_t size) {
  off_t data = ::lseek(fd, at, SEEK_DATA);
  return data < 0 ? (errno == ENXIO ? size : at) : data;
}

// Both have this size. Holes that both have are skipped: a file may claim exabytes of them.
// Contents that were cloned can show far more than the disk holds, so the bytes that are compared are bounded.
Result<bool> SameContent(int a, int b, off_t size, uint64_t& allowance) {
  std::string left(kBuffer, '\0'), right(kBuffer, '\0');
  off_t at = 0;
  while ((at = std::min(NextData(a, at, size), NextData(b, at, size))) < size) {
    ssize_t n = ::pread(a, left.data(), left.size(), at);
    ssize_t m = ::pread(b, right.data(), right.size(), at);
    if (n < 0 || m < 0) return FailErrno("read a file");
    if (n != m || n == 0) return false;
    if (allowance < static_cast<uint64_t>(n)) return Fail(Code::kTooLarge, "there is too much to compare");
    allowance -= static_cast<uint64_t>(n);
    size_t got = static_cast<size_t>(n);
    if (std::string_view(left).substr(0, got) != std::string_view(right).substr(0, got)) return false;
    at += n;
  }
  return true;
}

// Owner, mode, and what a reader sees; not times.
Result<bool> SameEntry(const Item& a, const Item& b, const std::string& name, uint64_t& allowance) {
  if (SameFile(a.st, b.st)) return true;
  if (a.st.st_mode != b.st.st_mode || a.st.st_uid != b.st.st_uid || a.st.st_gid != b.st.st_gid) return false;
  if (S_ISLNK(a.st.st_mode)) {
    SB_TRY(std::string left, ReadLink(a, name));
    SB_TRY(std::string right, ReadLink(b, name));
    return left == right;
  }
  if (!S_ISREG(a.st.st_mode)) return true;
  if (a.st.st_size != b.st.st_size) return false;
  Fd left = OpenFile(a, name), right = OpenFile(b, name);
  if (!left || !right) return FailErrno("open a file");
  return SameContent(left.get(), right.get(), a.st.st_size, allowance);
}

class Differ {
 public:
  Differ(const std::vector<Fd>* before, const std::vector<Fd>* after,
         const std::function<Result<>(const Change&)>* sink)
      : before_(*before), after_(*after), sink_(*sink) {}

  Result<> Directory(const os::Path& path, bool was, bool is) {
    if (path.size() > os::kMaxDepth) return Fail(Code::kTooLarge, "a directory lies too deep");
    std::vector<std::pair<std::string, bool>> below;  // directories to go on with, and whether they were there before
    {
      os::Merged old = was ? os::LookUp(before_, path) : os::Merged{};
      os::Merged now = is ? os::LookUp(after_, path) : os::Merged{};
      if (was && is && SameParts(old, now)) return {};
      SB_TRY(Items left, Entries(old));
      SB_TRY(Items right, Entries(now));
      std::string at = path.empty() ? "" : os::Join(path);
      for (const auto& [name, item] : left) {
        if (right.contains(name)) continue;
        SB_TRYV(sink_({at + "/" + name, 'D', TypeOf(item.st), 0, SizeOf(item.st)}));
      }
      for (const auto& [name, item] : right) {
        auto found = left.find(name);
        const Item* other = found == left.end() ? nullptr : &found->second;
        SB_TRYV(Compare(at + "/" + name, name, other, item));
        if (S_ISDIR(item.st.st_mode)) below.emplace_back(name, other != nullptr && S_ISDIR(other->st.st_mode));
      }
    }
    for (const auto& [name, before] : below) {
      os::Path child = path;
      child.push_back(name);
      SB_TRYV(Directory(child, before, true));
    }
    return {};
  }

 private:
  Result<> Compare(const std::string& path, const std::string& name, const Item* before, const Item& after) {
    Change change{path, 'A', TypeOf(after.st), SizeOf(after.st), 0};
    if (before != nullptr) {
      SB_TRY(bool same, SameEntry(*before, after, name, allowance_));
      if (same) return {};
      change.kind = 'M';
      change.before = SizeOf(before->st);
    }
    return sink_(change);
  }

  uint64_t allowance_ = kMaxCompared;
  const std::vector<Fd>& before_;
  const std::vector<Fd>& after_;
  const std::function<Result<>(const Change&)>& sink_;
};

}  // namespace

Result<> Diff(const std::vector<Fd>& before, const std::vector<Fd>& after,
              const std::function<Result<>(const Change&)>& sink) {
  return Differ(&before, &after, &sink).Directory({}, true, true);
}

}  // namespace sandbar::layer_scanner
