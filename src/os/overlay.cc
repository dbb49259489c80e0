#include "os/overlay.h"

#include <fcntl.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/log.h"
#include "os/mounts.h"
#include "os/openat.h"

namespace sandbar::os {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 4> kOptions = {
    {{"redirect_dir", "on"}, {"metacopy", "off"}, {"index", "off"}, {"xino", "auto"}}};

// Overlay acts on the layers with the mounter's identity. Plain root is not mapped in the id-mapped upper, so creating
// work/work fails and the kernel silently gives a read-only mount: become the machine's root, keeping capabilities.
class ActAs {
 public:
  explicit ActAs(uint32_t id) : bits_(::prctl(PR_GET_SECUREBITS)) {
    ::prctl(PR_SET_SECUREBITS, static_cast<unsigned long>(bits_) | SECBIT_NO_SETUID_FIXUP);
    ::setfsgid(id);
    ::setfsuid(id);
  }
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;
  ~ActAs() {
    ::setfsuid(0);
    ::setfsgid(0);
    ::prctl(PR_SET_SECUREBITS, static_cast<unsigned long>(bits_));
  }

 private:
  int bits_;
};

bool IsVolatile(const OverlaySpec& spec) {
  return spec.writable >= 0 && !spec.durable;
}

Result<Fd> CheckWritable(const OverlaySpec& spec, Fd mount) {
  if (spec.writable < 0) return mount;
  struct statvfs st{};
  if (::fstatvfs(mount.get(), &st) != 0) return FailErrno("statvfs overlay");
  if ((st.f_flag & ST_RDONLY) != 0)
    return Fail(Code::kIo, "the kernel made the overlay read-only: it cannot use the upper directory");
  return mount;
}

Result<Fd> ByFds(const OverlaySpec& spec) {
  Fd context(::fsopen("overlay", FSOPEN_CLOEXEC));
  if (!context) return FailErrno("fsopen overlay");
  auto failed = [&](const char* what) {
    int err = errno;
    std::string why = MountContextLog(context.get());
    return FailErrno(std::string("overlay ") + what + (why.empty() ? "" : " (" + why + ")"), err);
  };
  for (int layer : spec.layers) {
    if (::fsconfig(context.get(), FSCONFIG_SET_FD, "lowerdir+", nullptr, layer) != 0) return failed("lowerdir+");
  }
  if (spec.writable >= 0) {
    SB_TRY(Fd upper, OpenInside(spec.writable, "upper", O_PATH | O_DIRECTORY));
    SB_TRY(Fd work, OpenInside(spec.writable, "work", O_PATH | O_DIRECTORY));
    if (::fsconfig(context.get(), FSCONFIG_SET_FD, "upperdir", nullptr, upper.get()) != 0) return failed("upperdir");
    if (::fsconfig(context.get(), FSCONFIG_SET_FD, "workdir", nullptr, work.get()) != 0) return failed("workdir");
  }
  for (auto [key, value] : kOptions) {
    if (::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value, 0) != 0) return failed(key);
  }
  if (IsVolatile(spec) && ::fsconfig(context.get(), FSCONFIG_SET_FLAG, "volatile", nullptr, 0) != 0)
    return failed("volatile");
  {
    ActAs machine_root(spec.owner);
    if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) return failed("mount");
  }
  Fd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV));
  if (!mount) return failed("fsmount");
  return mount;
}

// Attaches mounts at scratch/<n> and takes them away again, whatever happens.
class Scratch {
 public:
  explicit Scratch(std::string dir) : dir_(std::move(dir)) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    for (int i = count_ - 1; i >= 0; --i) {
      if (auto r = Unmount(Path(i)); !r) log::Warn("{}", r.error().message);
    }
  }
  Result<std::string> Add(int mount) {
    SB_TRY(std::string path, MakeDir());
    SB_TRYV(os::Attach(mount, AT_FDCWD, path));
    return path;
  }
  Result<std::string> MakeDir() {
    std::string path = Path(count_);
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno("mkdir " + path);
    ++count_;
    return path;
  }

 private:
  std::string Path(int i) const { return dir_ + "/" + std::to_string(i); }
  std::string dir_;
  int count_ = 0;
};

Result<Fd> ByPaths(const OverlaySpec& spec) {
  // mountinfo shows the option string inside the machine: names relative to the scratch directory say nothing.
  SB_TRY(Fd here, OpenPath(".", O_PATH | O_DIRECTORY));
  Scratch scratch(spec.scratch);
  std::string lower;
  int n = 0;
  for (int layer : spec.layers) {
    SB_TRYV(scratch.Add(layer));
    lower += (lower.empty() ? "" : ":") + std::to_string(n++);
  }
  std::string data = "lowerdir=" + lower;
  if (spec.writable >= 0) {
    SB_TRYV(scratch.Add(spec.writable));
    data += ",upperdir=" + std::to_string(n) + "/upper,workdir=" + std::to_string(n) + "/work";
  }
  for (auto [key, value] : kOptions) data += std::string(",") + key + "=" + value;
  if (IsVolatile(spec)) data += ",volatile";
  SB_TRY(std::string target, scratch.MakeDir());
  if (::chdir(spec.scratch.c_str()) != 0) return FailErrno("chdir " + spec.scratch);
  int rc = 0, err = 0;
  {
    ActAs machine_root(spec.owner);
    rc = ::mount("overlay", target.c_str(), "overlay", MS_NODEV, data.c_str());
    err = errno;
  }
  if (::fchdir(here.get()) != 0) return FailErrno("chdir back");
  if (rc != 0) return FailErrno("mount overlay by paths", err);
  return CloneTree(AT_FDCWD, target);
}

}  // namespace

Result<Fd> MountOverlay(const OverlaySpec& spec) {
  if (!spec.force_paths) {
    auto mount = ByFds(spec);
    if (mount) return CheckWritable(spec, std::move(*mount));
    // Only "I do not know that option" means an older kernel (before 6.5: "I take no fds"); anything else would fail
    // the second way too.
    const int err = mount.error().sys_errno;
    if (err != EINVAL && err != EOPNOTSUPP) return mount;
    log::Debug("overlay by fds: {}; trying paths", mount.error().message);
  }
  SB_TRY(Fd mount, ByPaths(spec));
  return CheckWritable(spec, std::move(mount));
}

Result<> MakePathInside(int root, const std::string& path, uint32_t owner, bool upper) {
  ActAs machine_root(owner);
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(1, end == std::string::npos ? end : end - 1);
    auto dir = OpenInside(root, part, O_PATH | O_DIRECTORY);
    if (!dir && dir.error().sys_errno == ENOENT) {
      const size_t slash = part.rfind('/');
      SB_TRY(Fd parent,
             OpenInside(root, slash == std::string::npos ? "." : part.substr(0, slash), O_PATH | O_DIRECTORY));
      const std::string name = slash == std::string::npos ? part : part.substr(slash + 1);
      if (::mkdirat(parent.get(), name.c_str(), 0755) != 0) return FailErrno("make the directory /" + part);
      if (::fchmodat(parent.get(), name.c_str(), 0755, 0) != 0) return FailErrno("chmod /" + part);
    } else if (!dir) {
      const int err = dir.error().sys_errno;
      if (err == ENOTDIR || err == ELOOP)
        return Fail(Code::kBadRequest,
                    "cannot mount at " + path + ": /" + part + " is not a directory in this sandbox");
      return std::unexpected(std::move(dir).error().Context("the mount path " + path));
    }
    if (end != std::string::npos) continue;
    // Any change of a directory, even none, brings it up.
    if (dir && upper && ::utimensat(dir->get(), "", nullptr, AT_EMPTY_PATH) != 0) return FailErrno("touch " + path);
    return {};
  }
}

}  // namespace sandbar::os
