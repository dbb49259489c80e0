#include "spawner/microvm.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include <array>

#include "base/log.h"
#include "base/vm_config.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/process.h"
#include "os/vmm_jail.h"
#include "spawner/host.h"
#include "spawner/initramfs.h"
#include "spawner/memory_file.h"

namespace sandbar::spawner {
namespace {

constexpr const char* kQemu = "/usr/bin/qemu-system-x86_64";
constexpr size_t kMaxKernel = 256 << 20;
constexpr int kProbeMs = 20'000;
constexpr const char* kProbed = "/run/sandbar/kvm";

// Only root may have been able to write what becomes a guest's kernel.
Result<std::string> ReadTrusted(int dir, const std::string& name) {
  SB_TRY(Fd file, os::OpenInside(dir, name, O_RDONLY));
  struct stat st{};
  if (::fstat(file.get(), &st) != 0) return FailErrno("stat " + name);
  if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & 022) != 0)
    return Fail(Code::kForbidden, name + " must belong to root and be writable by nobody else");
  return os::ReadAll(file.get(), kMaxKernel);
}

Result<std::vector<std::pair<std::string, std::string>>> ReadModules(int dir) {
  std::vector<std::pair<std::string, std::string>> modules;
  auto list = ReadTrusted(dir, "modules.list");
  if (!list && list.error().sys_errno == ENOENT) return modules;
  if (!list) return std::unexpected(std::move(list).error());
  for (size_t at = 0; at < list->size();) {
    std::string name = list->substr(at, list->find('\n', at) - at);
    at += name.size() + 1;
    SB_TRY(std::string bytes, ReadTrusted(dir, "modules/" + name));
    modules.emplace_back(name, std::move(bytes));
  }
  return modules;
}

Result<> BindReadOnly(const std::string& room, const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return {};
  std::string at = room;
  for (size_t from = 1; from < path.size();) {
    size_t slash = std::min(path.find('/', from), path.size());
    at += "/" + path.substr(from, slash - from);
    if (::mkdir(at.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno("mkdir " + at);
    from = slash + 1;
  }
  SB_TRY(Fd tree, os::CloneTree(AT_FDCWD, path));
  SB_TRYV(os::SetMountAttributes(tree.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  return os::Attach(tree.get(), AT_FDCWD, at);
}

Result<> FurnishRoom(const Microvm& vm, const std::string& kernel, const std::string& initramfs) {
  if (::mkdir(vm.room.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno("mkdir " + vm.room);
  std::vector<os::MountOption> options = {{"mode", "0755"}, {"size", "256m"}};
  SB_TRY(Fd tmpfs, os::NewMount("tmpfs", options, MOUNT_ATTR_NOSUID));
  SB_TRYV(os::Attach(tmpfs.get(), AT_FDCWD, vm.room));
  SB_TRY(Fd dir, os::OpenPath(vm.room, O_RDONLY | O_DIRECTORY));
  SB_TRY(Fd files, os::EnsureDir(dir.get(), "vm", 0755));
  SB_TRYV(os::WriteFileAt(files.get(), "kernel", kernel, 0444));
  SB_TRYV(os::WriteFileAt(files.get(), "initramfs", initramfs, 0444));
  for (const char* path : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/share/qemu", "/usr/share/seabios"})
    SB_TRYV(BindReadOnly(vm.room, path));
  for (auto [target, name] : {std::pair("usr/lib", "lib"), std::pair("usr/lib64", "lib64")})
    if (::symlinkat(target, dir.get(), name) != 0 && errno != EEXIST) return FailErrno("symlink");
  SB_TRYV(os::EnsureDir(dir.get(), "proc", 0755));
  SB_TRY(Fd dev, os::EnsureDir(dir.get(), "dev", 0755));
  if (vm.kvm && ::mknodat(dev.get(), "kvm", S_IFCHR | 0666, makedev(10, 232)) != 0) return FailErrno("mknod kvm");
  if (vm.kvm && ::fchmodat(dev.get(), "kvm", 0666, 0) != 0) return FailErrno("chmod kvm");
  // From here on nobody writes to it.
  SB_TRY(Fd own, os::OpenPath(vm.room, O_PATH | O_DIRECTORY));
  return os::SetMountAttributes(own.get(), MOUNT_ATTR_RDONLY);
}

uint64_t MeasureTscKhz() {
  auto now = [] {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  };
  uint64_t from = now(), ticks = __rdtsc();
  while (now() - from < 10'000'000) {
  }
  uint64_t passed = now() - from;
  return (__rdtsc() - ticks) * 1'000'000 / passed;
}

Result<std::string> QemuVersion() {
  std::string said;
  SB_TRYV(os::RunProgram({kQemu, "--version"}, &said));
  const size_t at = std::min(said.find("version "), said.size());
  return said.substr(at, said.find('\n', at) - at);
}

std::string HostCpu() {
  auto text = os::ReadFile("/proc/cpuinfo", 1 << 20);
  const size_t at = text ? text->find("model name") : std::string::npos;
  if (at == std::string::npos) return "unknown";
  std::string line = text->substr(at, text->find('\n', at) - at);
  return line.substr(std::min(line.find(": "), line.size() - 2) + 2);
}

// A real boot, of our kernel with our agent: a device node says nothing. It ends by a reboot, which ends QEMU.
bool KvmWorks(const Microvm& vm, const std::string& kernel_path, const std::string& initramfs_path) {
  if (::access("/dev/kvm", R_OK | W_OK) != 0) return false;
  std::vector<std::string> words = QemuBase(vm, true, "probe");
  words.insert(words.end(), {"-kernel", kernel_path, "-initrd", initramfs_path, "-m", "128"});
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return false;
  Fd said(pipe[0]), stderr_end(pipe[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, stderr_end.get(), 2);
  pid_t pid = 0;
  char* const no_environment[] = {nullptr};
  int err = ::posix_spawn(&pid, kQemu, &actions, nullptr, argv.data(), no_environment);
  posix_spawn_file_actions_destroy(&actions);
  if (err != 0) return false;
  stderr_end.Reset();
  std::string text;
  int64_t until = os::BootTimeMs() + kProbeMs;
  for (;;) {
    pollfd p{said.get(), POLLIN, 0};
    auto left = static_cast<int>(std::max<int64_t>(until - os::BootTimeMs(), 0));
    if (::poll(&p, 1, left) <= 0) break;
    std::array<char, 4096> buffer{};
    ssize_t n = ::read(said.get(), buffer.data(), buffer.size());
    if (n <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(n));
    // It stands still then, for somebody to look at it.
    if (text.find("KVM internal error") != std::string::npos) break;
  }
  bool ended = false;
  int status = 0;
  for (int i = 0; i < 100 && !ended; ++i) {
    ended = ::waitpid(pid, &status, WNOHANG) == pid;
    if (!ended && text.find("KVM internal error") != std::string::npos) break;
    if (!ended) ::usleep(10'000);
  }
  if (!ended) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
  }
  bool works = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!works) log::Info("microvm: KVM is there but does not boot a guest; emulating");
  return works;
}

// What a probe found out is true until the host boots again or the kernel is another one.
bool KvmKnownToWork(const Microvm& vm, const std::string& kernel_path, const std::string& initramfs_path) {
  struct stat st{};
  if (::stat(kernel_path.c_str(), &st) != 0) return false;
  auto boot = os::ReadFile("/proc/sys/kernel/random/boot_id", 100);
  std::string key = boot.value_or("") + std::to_string(st.st_ino) + " " + std::to_string(st.st_mtime) + " ";
  auto known = os::ReadFile(kProbed, 200);
  if (known && known->starts_with(key)) return known->ends_with("yes");
  bool works = KvmWorks(vm, kernel_path, initramfs_path);
  auto run = os::OpenPath("/run/sandbar", O_RDONLY | O_DIRECTORY);
  auto kept =
      run ? os::WriteFileAt(run->get(), "kvm", key + (works ? "yes" : "no"), 0600) : std::unexpected(run.error());
  if (!kept) log::Debug("{}", kept.error().message);
  return works;
}

}  // namespace

std::vector<std::string> QemuBase(const Microvm& vm, bool kvm, const std::string& init_words, QemuMemory memory) {
  // Without the old timer and interrupt controller Linux does not trust the newer ones, and then no sleep ends.
  std::string type = "microvm,isa-serial=off,pit=on,pic=on,";
  type += vm.modules ? "acpi=on,rtc=on" : "acpi=off,rtc=off";
  if (memory != QemuMemory::kUnnamed) type += ",memory-backend=ram";
  std::string line = "panic=-1 quiet random.trust_cpu=on";
  if (!kvm) {
    // Nothing here that a guest could measure time against.
    line += " tsc=reliable tsc_early_khz=" + std::to_string(vm.tsc_khz) + " lpj=" + std::to_string(vm.tsc_khz * 4);
  }
  if (!init_words.empty()) line += " -- " + init_words;
  return {"qemu-system-x86_64",
          "-M",
          type,
          "-accel",
          kvm ? "kvm" : "tcg,thread=multi,tb-size=128",
          "-cpu",
          kvm ? "host" : "max",
          "-nodefaults",
          "-no-user-config",
          "-display",
          "none",
          "-monitor",
          "none",
          "-no-reboot",
          "-append",
          line};
}

std::vector<std::string> QemuMachine(const Microvm& vm, VmSize size, QemuMemory memory, bool network) {
  std::vector<std::string> words = QemuBase(vm, vm.kvm, "", memory);
  auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  std::string mib = std::to_string(size.first);
  add({"-kernel", kVmKernel, "-initrd", kVmInitramfs, "-L", "/usr/share/qemu", "-m", mib, "-smp",
       std::to_string(size.second)});
  // Its name is part of what is saved: the same in all of them.
  if (memory == QemuMemory::kOwn) add({"-object", "memory-backend-ram,id=ram,size=" + mib + "M"});
  if (memory == QemuMemory::kShared || memory == QemuMemory::kCopy)
    add({"-object", "memory-backend-file,id=ram,mem-path=/proc/self/fd/8,size=" + mib +
                        "M,share=" + (memory == QemuMemory::kShared ? "on" : "off")});
  // Whoever goes on with its memory runs, also when this one was made to stand still for it.
  add({"-global", "migration.store-global-state=off"});
  add({"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"});
  add({"-add-fd", "fd=3,set=1", "-add-fd", "fd=4,set=2"});
  add({"-blockdev", "driver=file,node-name=image-file,filename=/dev/fdset/1,read-only=on,locking=off", "-blockdev",
       "driver=raw,node-name=image,file=image-file,read-only=on", "-device",
       std::string("virtio-blk-device,drive=image,serial=") + kVmImageDisk});
  add({"-blockdev", "driver=file,node-name=disk-file,filename=/dev/fdset/2,locking=off,discard=unmap", "-blockdev",
       "driver=raw,node-name=disk,file=disk-file,discard=unmap", "-device",
       std::string("virtio-blk-device,drive=disk,serial=") + kVmWritableDisk});
  add({"-device", "virtio-serial-device", "-chardev", "socket,id=agent,fd=5,server=on,wait=off", "-device",
       std::string("virtserialport,chardev=agent,name=") + kVmAgentPort, "-chardev", "socket,id=config,fd=6", "-device",
       std::string("virtserialport,id=config-port,chardev=config,name=") + kVmConfigPort});
  if (network) add({"-netdev", "tap,id=net,fd=7,vhost=off"});
  add({"-device", std::string("virtio-net-device,mac=02:53:42:00:00:02") + (network ? ",netdev=net" : "")});
  add({"-object", "rng-builtin,id=random", "-device", "virtio-rng-device,rng=random"});
  return words;
}

Result<std::unique_ptr<Microvm>> PrepareMicrovm(const Options& options, const std::string& agent) {
  auto vm = std::make_unique<Microvm>();
  auto program = os::OpenPath(kQemu, O_PATH);
  if (!program) return Fail(Code::kUnsupported, "QEMU is missing (apt-get install qemu-system-x86)");
  vm->program = std::move(*program);
  for (auto [tool, package] :
       {std::pair("/usr/bin/mkfs.erofs", "erofs-utils"), std::pair("/sbin/mkfs.ext4", "e2fsprogs")})
    if (::access(tool, X_OK) != 0)
      return Fail(Code::kUnsupported, std::string(tool) + " is missing (apt-get install " + package + ")");
  if (!options.disk_limits) return Fail(Code::kUnsupported, "it needs the btrfs store (disk_limit = \"btrfs\")");
  auto dir = os::OpenPath(options.kernel, O_RDONLY | O_DIRECTORY);
  auto kernel = dir ? ReadTrusted(dir->get(), "kernel") : std::unexpected(dir.error());
  if (!kernel) return Fail(Code::kUnsupported, "no guest kernel (tools/kernel.sh cloud, or tools/kernel.sh build)");
  auto modules = ReadModules(dir->get());
  if (!modules) return std::unexpected(std::move(modules).error().Context("guest kernel"));
  vm->modules = !modules->empty();
  vm->tsc_khz = MeasureTscKhz();
  SB_TRY(vm->version, QemuVersion());
  vm->cpu = HostCpu();
  Checksum sum;
  sum.Add(*kernel);
  vm->kernel = sum.Hex();
  vm->room = std::string(kMountDir) + "/qemu";
  SB_TRY(vm->filter, os::BuildVmmFilter());
  std::string initramfs = MakeInitramfs(agent, *modules);
  SB_TRY(Fd mounts, os::OpenPath(kMountDir, O_RDONLY | O_DIRECTORY));
  SB_TRYV(os::WriteFileAt(mounts.get(), "initramfs", initramfs, 0400));
  vm->kvm = KvmKnownToWork(*vm, options.kernel + "/kernel", std::string(kMountDir) + "/initramfs");
  ::unlinkat(mounts.get(), "initramfs", 0);
  SB_TRYV(FurnishRoom(*vm, *kernel, initramfs));
  return vm;
}

}  // namespace sandbar::spawner
