#include "os/cgroup_fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>

#include "os/cgroup_trees.h"

namespace sandbar::os {
namespace {

// Calls f with every non-empty piece of s between separators.
template <class F>
void Split(std::string_view s, char separator, F f) {
  while (!s.empty()) {
    size_t n = std::min(s.find(separator), s.size());
    if (n > 0) f(s.substr(0, n));
    s.remove_prefix(std::min(n + 1, s.size()));
  }
}

std::vector<std::string> Words(std::string_view s, char separator = ' ') {
  std::vector<std::string> out;
  Split(s, separator, [&out](std::string_view w) { out.emplace_back(w); });
  return out;
}

bool IsKnownController(std::string_view name) {
  for (std::string_view known : {"cpu", "cpuacct", "memory", "pids", "freezer", "devices"}) {
    if (name == known) return true;
  }
  return false;
}

}  // namespace

CgroupFs::~CgroupFs() = default;

Result<> CgroupFs::MakeDir(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0) return {};
  if (errno == EEXIST) return Fail(Code::kConflict, path + " exists");
  return FailErrno("mkdir " + path);
}

Result<> CgroupFs::EnsureDir(const std::string& path) {
  auto made = MakeDir(path);
  if (!made && made.error().code != Code::kConflict) return made;
  return {};
}

Result<> CgroupFs::GiveAway(const std::string& path, uint32_t owner) {
  for (const char* file : {"", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"}) {
    if (::lchown((path + file).c_str(), owner, owner) != 0) return FailErrno("chown " + path + file);
  }
  return {};
}

Result<> CgroupFs::RemoveTree(const std::string& path) {
  for (const std::string& name : SubDirs(path)) SB_TRYV(RemoveTree(path + "/" + name));
  return RemoveDir(path);
}

Result<> CgroupFs::RemoveDir(const std::string& path) {
  if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return {};
  if (errno == EBUSY || errno == ENOTEMPTY) return Fail(Code::kConflict, path + " still has members");
  return FailErrno("rmdir " + path);
}

Result<> CgroupFs::Write(const std::string& path, std::string_view text) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return FailErrno("open " + path);
  // One write: the kernel parses each write on its own.
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return FailErrno("write '" + std::string(text) + "' to " + path);
  }
  return {};
}

Result<std::string> CgroupFs::Read(const std::string& path) const {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FailErrno("open " + path);
  std::string out;
  char buf[8192];
  for (;;) {
    ssize_t n = ::read(fd.get(), buf, sizeof buf);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("read " + path);
    if (n == 0) return out;
    out.append(buf, static_cast<size_t>(n));
  }
}

Result<> CgroupFs::AttachDevices(int dir, bool kvm) {
  return AttachDeviceFilter(dir, kvm);
}

bool CgroupFs::IsDelegated(const std::string& path) const {
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    char value[8] = {};
    if (::getxattr(path.c_str(), name, value, sizeof value - 1) == 1 && value[0] == '1') return true;
  }
  return false;
}

Result<Fd> CgroupFs::OpenDir(const std::string& path) const {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return FailErrno("open " + path);
  return fd;
}

Result<Fd> CgroupFs::OpenForJoin(const std::string& path) const {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return FailErrno("open " + path);
  return fd;
}

bool CgroupFs::Exists(const std::string& path) const {
  return ::access(path.c_str(), F_OK) == 0;
}

std::vector<std::string> CgroupFs::SubDirs(const std::string& path) const {
  std::vector<std::string> out;
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (!dir) return out;
  while (const dirent* e = ::readdir(dir.get())) {
    if (e->d_type == DT_DIR && e->d_name[0] != '.') out.emplace_back(e->d_name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<uint64_t> CgroupFs::ReadNumber(const std::string& path, std::string_view key) const {
  SB_TRY(std::string text, Read(path));
  std::string found;
  Split(text, '\n', [&](std::string_view line) {
    auto words = Words(line);
    if (key.empty() && words.size() == 1 && found.empty()) found = words[0];
    if (!key.empty() && words.size() == 2 && words[0] == key) found = words[1];
  });
  if (found == "max") return UINT64_MAX;
  uint64_t value = 0;
  auto [end, err] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (err != std::errc() || end != found.data() + found.size() || found.empty()) {
    return Fail(Code::kProtocol, "no number " + std::string(key) + " in " + path);
  }
  return value;
}

CgroupMounts ParseCgroupMounts(std::string_view mountinfo, std::string_view self_cgroup) {
  CgroupMounts out;
  Split(mountinfo, '\n', [&out](std::string_view line) {
    // "36 35 98:0 <root> <mount point> <options> <tags…> - <type> <source> <super options>"
    auto words = Words(line);
    auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) return;
    const std::string& dir = words[4];
    const std::string& type = dash[1];
    if (type == "cgroup2" && out.v2.empty()) out.v2 = dir;
    if (type != "cgroup") return;
    CgroupMounts::V1 mount{dir, {}};
    for (auto& option : Words(dash[3], ',')) {
      if (IsKnownController(option)) mount.controllers.push_back(option);
    }
    // The same hierarchy may be mounted twice; the first serves.
    bool seen =
        std::any_of(out.v1.begin(), out.v1.end(), [&](const auto& m) { return m.controllers == mount.controllers; });
    if (!mount.controllers.empty() && !seen) out.v1.push_back(std::move(mount));
  });
  Split(self_cgroup, '\n', [&out](std::string_view line) {
    if (line.starts_with("0::/")) out.self_v2 = line.substr(3);
  });
  return out;
}

}  // namespace sandbar::os
