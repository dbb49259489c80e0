#include "guest/vm_init.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "guest/vm_net.h"
#include "protocol/vm_config.h"

namespace sandbar::guest {
namespace {

using namespace protocol;  // protocol/vm_config.h

constexpr int kDeviceWaitMs = 60000;  // an emulated machine on a busy host is slow
constexpr int kDeviceStepMs = 5;
constexpr unsigned long kExt4Resize = _IOW('f', 16, uint64_t);

Result<> Mount(const char* source, const char* target, const char* type, unsigned long flags, const char* data = "") {
  ::mkdir(target, 0755);
  if (::mount(source, target, type, flags, data) != 0) return FailErrno(std::string("mount ") + target);
  return {};
}

Result<std::string> ReadText(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FailErrno("open " + path);
  std::string out;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = ::read(fd.get(), buffer.data(), buffer.size())) > 0;)
    out.append(buffer.data(), static_cast<size_t>(n));
  return out;
}

Result<> WriteText(const std::string& path, std::string_view text, mode_t mode = 0644) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!fd) return FailErrno("open " + path);
  while (!text.empty()) {
    ssize_t n = ::write(fd.get(), text.data(), text.size());
    if (n < 0) return FailErrno("write " + path);
    text.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

std::string FirstLine(std::string text) {
  return text.substr(0, text.find('\n'));
}

// A kernel without modules has no list.
Result<> LoadModules(const char* names) {
  auto list = ReadText(names);
  if (!list) return {};
  for (size_t at = 0; at < list->size();) {
    std::string path = FirstLine(list->substr(at));
    at += path.size() + 1;
    Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return FailErrno("open " + path);
    if (::syscall(SYS_finit_module, file.get(), "", 0) != 0 && errno != EEXIST) return FailErrno("load " + path);
  }
  return {};
}

// The name of the entry of a directory in /sys whose file `attribute` has this text.
Result<std::string> FindOnce(const std::string& dir, const char* attribute, const char* wanted) {
  std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(dir.c_str()), ::closedir);
  if (!entries) return FailErrno("open " + dir);
  while (dirent* e = ::readdir(entries.get())) {
    std::string name = e->d_name;
    auto text = ReadText(dir + "/" + name + "/" + attribute);
    if (text && FirstLine(*text) == wanted) return name;
  }
  return Fail(Code::kNotFound, std::string("no device ") + wanted);
}

// Devices appear when their drivers are ready.
Result<std::string> FindDevice(const std::string& dir, const char* attribute, const char* wanted) {
  for (int waited = 0;; waited += kDeviceStepMs) {
    auto found = FindOnce(dir, attribute, wanted);
    if (found || waited >= kDeviceWaitMs) return found;
    ::usleep(kDeviceStepMs * 1000);
  }
}

// Nodes are made by the kernel; udev is not here.
Result<Fd> OpenPort(const char* name) {
  SB_TRY(std::string device, FindDevice("/sys/class/virtio-ports", "name", name));
  Fd fd(::open(("/dev/" + device).c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return FailErrno("open port " + device);
  return fd;
}

Result<std::string> ReadExactly(int fd, size_t size) {
  std::string out;
  std::array<char, 65536> buffer{};
  while (out.size() < size) {
    ssize_t n = ::read(fd, buffer.data(), std::min(buffer.size(), size - out.size()));
    if (n < 0 && errno != EINTR) return FailErrno("read the configuration");
    if (n == 0) ::usleep(kDeviceStepMs * 1000);  // the host has not opened its end yet
    if (n > 0) out.append(buffer.data(), static_cast<size_t>(n));
  }
  return out;
}

Result<std::string> Disk(const char* serial) {
  SB_TRY(std::string device, FindDevice("/sys/block", "serial", serial));
  return "/dev/" + device;
}

// QEMU looks whether a port was opened only when its main loop comes round, which may be a minute later. Waiting for a
// disk makes it come round.
Result<> NudgeHost() {
  SB_TRY(std::string disk, Disk(kVmImageDisk));
  Fd fd(::open(disk.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (!fd) return FailErrno("open " + disk);
  alignas(4096) std::array<char, 4096> block;
  if (::pread(fd.get(), block.data(), block.size(), 0) < 0) return FailErrno("read " + disk);
  return {};
}

Result<VmConfig> ReadConfig(int port) {
  SB_TRY(std::string head, ReadExactly(port, 4));
  uint32_t size = ByteReader(head).U32();
  if (size > kMaxVmConfig) return Fail(Code::kProtocol, "the configuration is too long");
  SB_TRY(std::string body, ReadExactly(port, size));
  return DecodeVmConfig(body);
}

}  // namespace

Result<> RefreshKernel(std::string_view entropy, int64_t clock_ns) {
  Fd random(::open("/dev/urandom", O_RDWR | O_CLOEXEC));
  if (!random) return FailErrno("open /dev/urandom");
  struct {
    int bits = 0;
    int size = 0;
    std::array<char, 256> bytes{};
  } pool;
  size_t n = std::min(entropy.size(), pool.bytes.size());
  pool.bits = static_cast<int>(n * 8);
  pool.size = static_cast<int>(n);
  std::memcpy(pool.bytes.data(), entropy.data(), n);
  if (::ioctl(random.get(), RNDADDENTROPY, &pool) != 0) return FailErrno("add entropy");
  if (::ioctl(random.get(), RNDRESEEDCRNG) != 0) return FailErrno("reseed");
  timespec now{};
  now.tv_sec = clock_ns / 1'000'000'000;
  now.tv_nsec = clock_ns % 1'000'000'000;
  if (::clock_settime(CLOCK_REALTIME, &now) != 0) return FailErrno("set the clock");
  return {};
}

namespace {

// Its driver looks at the device again: size and contents are not those of the template.
Result<> Reprobe(const char* serial) {
  SB_TRY(std::string device, FindDevice("/sys/block", "serial", serial));
  std::array<char, 256> link{};
  ssize_t n = ::readlink(("/sys/block/" + device + "/device").c_str(), link.data(), link.size());
  if (n <= 0) return FailErrno("find the driver of " + device);
  std::string name(link.data(), static_cast<size_t>(n));
  name = name.substr(name.rfind('/') + 1);
  SB_TRYV(WriteText("/sys/bus/virtio/drivers/virtio_blk/unbind", name));
  return WriteText("/sys/bus/virtio/drivers/virtio_blk/bind", name);
}

Result<> MakeParents(const std::string& base, const std::string& path) {
  for (size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
    std::string dir = base + "/" + path.substr(0, at);
    if (::mkdir(dir.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno("mkdir " + dir);
  }
  return {};
}

Result<> MakeSite(const VmConfig& config) {
  SB_TRYV(Mount("site", "/site", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755"));
  for (const char* dir : {"proc", "sys", "dev", "tmp", "run"})
    if (::mkdir((std::string("/site/") + dir).c_str(), 0755) != 0) return FailErrno("mkdir");
  if (::chmod("/site/tmp", 01777) != 0) return FailErrno("chmod");
  for (const VmFile& f : config.files) {
    SB_TRYV(MakeParents("/site", f.path));
    SB_TRYV(WriteText("/site/" + f.path, f.bytes, f.mode & 0777));
  }
  return {};
}

// A device may be larger than when its filesystem was made.
Result<> Grow(const std::string& disk, const char* mounted) {
  Fd device(::open(disk.c_str(), O_RDONLY | O_CLOEXEC)), dir(::open(mounted, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct statfs fs{};
  uint64_t bytes = 0;
  if (!device || !dir || ::ioctl(device.get(), BLKGETSIZE64, &bytes) != 0 || ::fstatfs(dir.get(), &fs) != 0)
    return FailErrno("look at " + disk);
  uint64_t blocks = bytes / static_cast<uint64_t>(fs.f_bsize);
  // What it takes for itself is not among its blocks, so this one asks more often than needed. A filesystem that has
  // seen errors stays as it is.
  if (blocks > fs.f_blocks && ::ioctl(dir.get(), kExt4Resize, &blocks) != 0 && errno != EPERM)
    return FailErrno("grow " + disk);
  return {};
}

Result<> MountRoot(const VmConfig& config) {
  if (config.restored) {
    SB_TRYV(Reprobe(kVmImageDisk));
    SB_TRYV(Reprobe(kVmWritableDisk));
  }
  SB_TRY(std::string image, Disk(kVmImageDisk));
  SB_TRY(std::string disk, Disk(kVmWritableDisk));
  SB_TRYV(Mount(image.c_str(), "/image", "erofs", MS_RDONLY | MS_NODEV));
  SB_TRYV(Mount(disk.c_str(), "/disk", "ext4", MS_NODEV));
  SB_TRYV(Grow(disk, "/disk"));
  SB_TRYV(MakeSite(config));
  for (const char* dir : {"/disk/upper", "/disk/work"})
    if (::mkdir(dir, 0755) != 0 && errno != EEXIST) return FailErrno(std::string("mkdir ") + dir);
  return Mount("overlay", "/root", "overlay", 0,
               "lowerdir=/site:/image,upperdir=/disk/upper,workdir=/disk/work,redirect_dir=on,index=off");
}

// Its top directory is not the filesystem's, which has a lost+found. The mount is not attached to anything yet.
Result<Fd> MountDrive(const VmDrive& drive, size_t index, bool restored) {
  if (restored) SB_TRYV(Reprobe(VmDriveDisk(index).c_str()));
  SB_TRY(std::string disk, Disk(VmDriveDisk(index).c_str()));
  const std::string at = "/" + VmDriveDisk(index), top = at + "/upper";
  SB_TRYV(Mount(disk.c_str(), at.c_str(), "ext4", MS_NOSUID | MS_NODEV));
  if (drive.writable) {
    SB_TRYV(Grow(disk, at.c_str()));
    const bool made = ::mkdir(top.c_str(), 0755) == 0;
    if (made ? ::chown(top.c_str(), drive.uid, drive.gid) != 0 : errno != EEXIST) return FailErrno("mkdir " + top);
  }
  Fd tree(::open_tree(AT_FDCWD, top.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
  if (!tree) return FailErrno("open " + top);
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (drive.writable ? 0 : MOUNT_ATTR_RDONLY);
  if (::mount_setattr(tree.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0)
    return FailErrno("set " + top);
  return tree;
}

Result<std::vector<Fd>> MountDrives(const VmConfig& config) {
  std::vector<Fd> trees;
  for (size_t i = 0; i < config.drives.size(); ++i) {
    SB_TRY(Fd tree, MountDrive(config.drives[i], i, config.restored));
    trees.push_back(std::move(tree));
  }
  return trees;
}

// What is missing of it is made; links are not followed.
Result<Fd> OpenPlace(const std::string& path) {
  Fd at(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (size_t from = 1; from < path.size();) {
    const size_t slash = std::min(path.find('/', from), path.size());
    const std::string name = path.substr(from, slash - from);
    from = slash + 1;
    if (::mkdirat(at.get(), name.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno("make " + path);
    at = Fd(::openat(at.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!at) return FailErrno(path);
  }
  return at;
}

// In the machine's own root.
Result<> AttachDrives(const VmConfig& config, const std::vector<Fd>& trees) {
  for (size_t i = 0; i < trees.size(); ++i) {
    const std::string& path = config.drives[i].path;
    SB_TRY(Fd place, OpenPlace(path));
    if (::move_mount(trees[i].get(), "", place.get(), "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
      return FailErrno("mount a drive at " + path);
  }
  return {};
}

Result<> MountKernelFiles() {
  constexpr unsigned long kPlain = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  SB_TRYV(Mount("proc", "/root/proc", "proc", kPlain));
  SB_TRYV(Mount("sysfs", "/root/sys", "sysfs", kPlain));
  SB_TRYV(Mount("dev", "/root/dev", "devtmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755"));
  SB_TRYV(Mount("devpts", "/root/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "ptmxmode=0666,mode=0620,gid=5"));
  SB_TRYV(Mount("shm", "/root/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"));
  // Not on every kernel, and only for those who run containers inside.
  if (auto r = Mount("cgroup2", "/root/sys/fs/cgroup", "cgroup2", kPlain); !r) log::Debug("{}", r.error().message);
  for (auto [target, path] : {std::pair("/proc/self/fd", "/root/dev/fd"),
                              {"/proc/self/fd/0", "/root/dev/stdin"},
                              {"/proc/self/fd/1", "/root/dev/stdout"},
                              {"/proc/self/fd/2", "/root/dev/stderr"}}) {
    if (::symlink(target, path) != 0 && errno != EEXIST) return FailErrno(path);
  }
  return {};
}

// Containers' filesystems are overlays, which cannot stand on another one: their place is the disk's own directory, at
// the same path, so it is what a machine of another class would find there. /run is empty at every start.
Result<> PrepareNesting() {
  SB_TRYV(LoadModules("/containers.list"));
  for (const std::string path : {"var/lib/containers", "var/lib/docker"}) {
    SB_TRYV(MakeParents("/root", path + "/"));
    // Any change of a directory, even none, brings it up to the writable layer.
    if (::utimensat(AT_FDCWD, ("/root/" + path).c_str(), nullptr, 0) != 0) return FailErrno("touch " + path);
    if (::mount(("/disk/upper/" + path).c_str(), ("/root/" + path).c_str(), nullptr, MS_BIND, nullptr) != 0)
      return FailErrno("mount " + path);
  }
  return Mount("run", "/root/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
}

Result<> EnterRoot() {
  if (::chdir("/root") != 0 || ::mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || ::chroot(".") != 0 ||
      ::chdir("/") != 0)
    return FailErrno("enter the root");
  return {};
}

Result<> SetKernel(const VmConfig& config) {
  if (::sethostname(config.hostname.data(), config.hostname.size()) != 0) return FailErrno("set the host name");
  if (config.pids != 0) SB_TRYV(WriteText("/proc/sys/kernel/threads-max", std::to_string(config.pids)));
  // Ping for everybody, and low ports, as in machines of other kinds.
  for (auto [path, value] : {std::pair("/proc/sys/net/ipv4/ping_group_range", "0 2147483647"),
                             {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"}}) {
    if (auto r = WriteText(path, value); !r) log::Debug("{}", r.error().message);
  }
  return {};
}

// An agent that was restored from a template has the addresses and the stack guard of all other agents of that
// template. Executes /init again, so that the kernel, whose random numbers are fresh by now, gives it new ones. Returns
// only with an error.
Result<> BeginAnew(const VmConfig& config, int agent) {
  Fd kept(::memfd_create("config", 0));
  if (!kept) return FailErrno("keep the configuration");
  const std::string text = EncodeVmConfig(config);
  for (size_t at = 0; at < text.size();) {
    ssize_t n = ::write(kept.get(), text.data() + at, text.size() - at);
    if (n <= 0) return FailErrno("keep the configuration");
    at += static_cast<size_t>(n);
  }
  if (::lseek(kept.get(), 0, SEEK_SET) != 0) return FailErrno("keep the configuration");
  Fd port(::dup(agent));  // without O_CLOEXEC, so it stays open in the new program
  std::string config_fd = std::to_string(kept.get()), agent_fd = std::to_string(port.get());
  std::string name = "/init", word = kVmRestored;
  std::array<char*, 5> argv{name.data(), word.data(), config_fd.data(), agent_fd.data(), nullptr};
  ::execv("/init", argv.data());
  return FailErrno("execute /init");
}

// All that follows the configuration is the machine's own life.
Result<VmStart> Start(const VmConfig& config) {
  VmStart out;
  SB_TRYV(MountRoot(config));
  out.written = Fd(::open("/disk/upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out.written) return FailErrno("open /disk/upper");
  SB_TRY(std::vector<Fd> drives, MountDrives(config));
  SB_TRYV(MountKernelFiles());
  if (config.nesting) SB_TRYV(PrepareNesting());
  SB_TRYV(EnterRoot());
  SB_TRYV(AttachDrives(config, drives));
  SB_TRYV(SetKernel(config));
  SB_TRYV(ConfigureNetwork(VmMac(config.key)));
  out.machine_key = config.key;
  return out;
}

Result<VmStart> StartFrom(Result<VmConfig> config, Fd agent) {
  auto started = config ? Start(*config) : std::unexpected(std::move(config).error());
  if (started) {
    started->agent = std::move(agent);
    return started;
  }
  // For a daemon that is there and waits for the agent.
  ::fcntl(agent.get(), F_SETFL, O_NONBLOCK);
  const std::string words = kVmFailure + started.error().message;
  [[maybe_unused]] ssize_t n = ::write(agent.get(), words.data(), words.size());
  return started;
}

// Gives the kernel fresh entropy and the time before anything uses its random numbers.
Result<VmConfig> TakeConfig() {
  SB_TRY(Fd port, OpenPort(kVmConfigPort));
  SB_TRYV(NudgeHost());
  SB_TRY(VmConfig config, ReadConfig(port.get()));
  SB_TRYV(RefreshKernel(config.entropy, config.clock_ns));
  return config;
}

}  // namespace

Result<VmStart> BecomeVm() {
  SB_TRYV(Mount("dev", "/dev", "devtmpfs", MS_NOSUID));
  SB_TRYV(Mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  SB_TRYV(Mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  SB_TRYV(LoadModules("/modules.list"));
  // Opened before a template is made.
  SB_TRY(Fd agent, OpenPort(kVmAgentPort));
  auto config = TakeConfig();
  // A machine that cannot get addresses of its own does not start: every machine is promised them.
  if (config && config->restored) {
    auto begun = BeginAnew(*config, agent.get());
    config = std::unexpected(std::move(begun).error());
  }
  return StartFrom(std::move(config), std::move(agent));
}

Result<VmStart> ResumeVm(Fd config, Fd agent) {
  return StartFrom(ReadConfig(config.get()), std::move(agent));
}

}  // namespace sandbar::guest
