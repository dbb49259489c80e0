#include "spawner/machines/microvm.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include <array>

#include "base/files.h"
#include "base/log.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/process.h"
#include "os/vmm_jail.h"
#include "protocol/vm_config.h"
#include "spawner/disk/memory_file.h"
#include "spawner/host_resources.h"
#include "spawner/machines/initramfs.h"

namespace sandbar::spawner {
namespace {

constexpr const char* kQemu = "/usr/bin/qemu-system-x86_64";
constexpr size_t kMaxKernel = 256 << 20;
constexpr int kProbeMs = 20'000;
constexpr uid_t kNobody = 65534;  // no guest's code runs in a probe
constexpr size_t kMaxSaid = 64 << 10;
constexpr const char* kProbed = "/run/sandbar/kvm";

// Only root may have been able to write what becomes QEMU or a guest's kernel.
Result<> CheckTrusted(int file, const std::string& name) {
  struct stat st{};
  if (::fstat(file, &st) != 0) return FailErrno("stat " + name);
  if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & 022) != 0)
    return Fail(Code::kForbidden, name + " must belong to root and be writable by nobody else");
  return {};
}

Result<std::string> ReadTrusted(int dir, const std::string& name) {
  SB_TRY(Fd file, os::OpenInside(dir, name, O_RDONLY));
  SB_TRYV(CheckTrusted(file.get(), name));
  return ReadAll(file.get(), kMaxKernel);
}

Result<Fd> OpenQemu(const Options& options) {
  auto program = os::OpenPath(options.qemu.empty() ? kQemu : options.qemu, O_PATH);
  if (!program && options.qemu.empty())
    return Fail(Code::kUnsupported, "QEMU is missing (apt-get install qemu-system-x86)");
  if (!program) return Fail(Code::kUnsupported, "no QEMU at " + options.qemu + " (microvm.qemu)");
  SB_TRYV(CheckTrusted(program->get(), options.qemu));
  return program;
}

Result<Modules> ReadModules(int dir, const std::string& file) {
  Modules modules;
  auto list = ReadTrusted(dir, file);
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

Result<> FillJailTree(const Microvm& vm, const std::string& kernel, const std::string& initramfs) {
  if (::mkdir(vm.jail_tree.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno("mkdir " + vm.jail_tree);
  std::vector<os::MountOption> options = {{"mode", "0755"}, {"size", "256m"}};
  SB_TRY(Fd tmpfs, os::NewMount("tmpfs", options, MOUNT_ATTR_NOSUID));
  SB_TRYV(os::Attach(tmpfs.get(), AT_FDCWD, vm.jail_tree));
  SB_TRY(Fd dir, os::OpenPath(vm.jail_tree, O_RDONLY | O_DIRECTORY));
  SB_TRY(Fd files, os::EnsureDir(dir.get(), "vm", 0755));
  SB_TRYV(os::WriteFileAt(files.get(), "kernel", kernel, 0444));
  SB_TRYV(os::WriteFileAt(files.get(), "initramfs", initramfs, 0444));
  for (const char* path : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/share/qemu", "/usr/share/seabios"})
    SB_TRYV(BindReadOnly(vm.jail_tree, path));
  for (auto [target, name] : {std::pair("usr/lib", "lib"), std::pair("usr/lib64", "lib64")})
    if (::symlinkat(target, dir.get(), name) != 0 && errno != EEXIST) return FailErrno("symlink");
  SB_TRYV(os::EnsureDir(dir.get(), "proc", 0755));
  SB_TRY(Fd dev, os::EnsureDir(dir.get(), "dev", 0755));
  if (::access("/dev/kvm", R_OK | W_OK) != 0) return {};
  if (::mknodat(dev.get(), "kvm", S_IFCHR | 0666, makedev(10, 232)) != 0) return FailErrno("mknod kvm");
  if (::fchmodat(dev.get(), "kvm", 0666, 0) != 0) return FailErrno("chmod kvm");
  return {};
}

// From here on nobody writes to it.
Result<> SealJailTree(const Microvm& vm) {
  if (!vm.kvm) ::unlink((vm.jail_tree + "/dev/kvm").c_str());
  SB_TRY(Fd own, os::OpenPath(vm.jail_tree, O_PATH | O_DIRECTORY));
  return os::SetMountAttributes(own.get(), MOUNT_ATTR_RDONLY);
}

// Another one may write its state down in another way. It is not asked: outside of the jail it never runs.
Result<std::string> Identify(int program) {
  struct stat st{};
  if (::fstat(program, &st) != 0) return FailErrno("QEMU");
  return fmt::format("of {} bytes from {}", st.st_size, st.st_mtim.tv_sec);
}

std::string HostCpu() {
  auto text = os::ReadFile("/proc/cpuinfo", 1 << 20);
  const size_t at = text ? text->find("model name") : std::string::npos;
  if (at == std::string::npos) return "unknown";
  std::string line = text->substr(at, text->find('\n', at) - at);
  return line.substr(std::min(line.find(": "), line.size() - 2) + 2);
}

// In the jail that machines have, with what they have but devices.
Result<os::Child> StartProbe(const Microvm& vm, int errors) {
  SB_TRY(Fd jail_tree, os::CloneTree(AT_FDCWD, vm.jail_tree, true));
  os::VmmPlan plan;
  plan.root = jail_tree.get();
  plan.mount_point = std::string(kMountDir) + "/mp";
  plan.uid = plan.gid = kNobody;
  plan.program = vm.program.get();
  plan.argv = QemuBase(vm, true, "probe");
  plan.argv.insert(plan.argv.end(),
                   {"-kernel", kVmKernel, "-initrd", kVmInitramfs, "-L", "/usr/share/qemu", "-m", "128"});
  plan.env = {kQemuModules};
  plan.errors = errors;
  sock_fprog filter{static_cast<unsigned short>(vm.filter.size()), const_cast<sock_filter*>(vm.filter.data())};
  plan.filter = &filter;
  return os::StartVmm(std::move(plan));
}

// True when it ended well by itself. What it says is no more than a hint: a guest that KVM cannot run stands still.
bool AwaitProbe(const os::Child& child, int said) {
  std::string text;
  const int64_t until = os::BootTimeMs() + kProbeMs;
  for (;;) {
    auto status = os::TryReap(child.pidfd.get());
    if (!status || status->has_value()) return status && **status == 0;
    const int64_t left = until - os::BootTimeMs();
    if (left <= 0 || text.find("KVM internal error") != std::string::npos) return false;
    std::array<pollfd, 2> p = {pollfd{child.pidfd.get(), POLLIN, 0}, pollfd{said, POLLIN, 0}};
    if (::poll(p.data(), text.size() < kMaxSaid ? 2 : 1, static_cast<int>(left)) < 0 && errno != EINTR) return false;
    std::array<char, 4096> buffer{};
    ssize_t n = (p[1].revents & POLLIN) != 0 ? ::read(said, buffer.data(), buffer.size()) : 0;
    if (n > 0) text.append(buffer.data(), static_cast<size_t>(n));
  }
}

// A real boot, of our kernel with our agent: a device node says nothing. It ends by a reboot, which ends QEMU.
bool KvmWorks(const Microvm& vm) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) return false;
  Fd said(pipe[0]), errors(pipe[1]);
  auto child = StartProbe(vm, errors.get());
  bool works = child && AwaitProbe(*child, said.get());
  if (!works) log::Info("microvm: KVM is there but does not boot a guest; emulating");
  if (!child) return false;
  if (auto r = os::SendSignal(child->pidfd.get(), SIGKILL); !r) log::Debug("{}", r.error().message);
  for (int i = 0; i < 100; ++i) {
    auto status = os::TryReap(child->pidfd.get());
    if (!status || status->has_value()) break;
    ::usleep(10'000);
  }
  return works;
}

// What a probe found out is true until the host boots again or kernel or QEMU are other ones.
bool KvmKnownToWork(const Microvm& vm, const std::string& kernel_path) {
  if (::access("/dev/kvm", R_OK | W_OK) != 0) return false;
  std::string key = os::ReadFile("/proc/sys/kernel/random/boot_id", 100).value_or("");
  struct stat kernel{}, qemu{};
  if (::stat(kernel_path.c_str(), &kernel) != 0 || ::fstat(vm.program.get(), &qemu) != 0) return false;
  for (const struct stat& st : {kernel, qemu})
    key += std::to_string(st.st_ino) + " " + std::to_string(st.st_mtime) + " ";
  auto known = os::ReadFile(kProbed, 400);
  if (known && known->starts_with(key)) return known->ends_with("yes");
  bool works = KvmWorks(vm);
  auto run = os::OpenPath("/run/sandbar", O_RDONLY | O_DIRECTORY);
  auto kept =
      run ? os::WriteFileAt(run->get(), "kvm", key + (works ? "yes" : "no"), 0600) : std::unexpected(run.error());
  if (!kept) log::Debug("{}", kept.error().message);
  return works;
}

}  // namespace

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
  std::string mib = std::to_string(size.mib);
  add({"-kernel", kVmKernel, "-initrd", kVmInitramfs, "-L", "/usr/share/qemu", "-m", mib, "-smp",
       std::to_string(size.vcpus)});
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

std::vector<std::string> QemuDrive(size_t index, size_t fd) {
  const std::string name = VmDriveDisk(index), set = std::to_string(3 + index);  // two are taken
  return {
      "-add-fd",   "fd=" + std::to_string(fd) + ",set=" + set,
      "-blockdev", "driver=file,node-name=" + name + "-file,filename=/dev/fdset/" + set + ",locking=off,discard=unmap",
      "-blockdev", "driver=raw,node-name=" + name + ",file=" + name + "-file,discard=unmap",
      "-device",   "virtio-blk-device,drive=" + name + ",serial=" + name};
}

Result<std::unique_ptr<Microvm>> PrepareMicrovm(const Options& options, const std::string& agent) {
  auto vm = std::make_unique<Microvm>();
  SB_TRY(vm->program, OpenQemu(options));
  for (auto [tool, package] :
       {std::pair("/usr/bin/mkfs.erofs", "erofs-utils"), std::pair("/sbin/mkfs.ext4", "e2fsprogs")})
    if (::access(tool, X_OK) != 0)
      return Fail(Code::kUnsupported, std::string(tool) + " is missing (apt-get install " + package + ")");
  if (!options.disk_limits) return Fail(Code::kUnsupported, "it needs the btrfs store (disk_limit = \"btrfs\")");
  auto dir = os::OpenPath(options.kernel, O_RDONLY | O_DIRECTORY);
  auto kernel = dir ? ReadTrusted(dir->get(), "kernel") : std::unexpected(dir.error());
  if (!kernel)
    return Fail(Code::kUnsupported,
                "no guest kernel in " + options.kernel + " (sandbar kernel cloud, or sandbar kernel build)");
  auto modules = ReadModules(dir->get(), "modules.list");
  if (!modules) return std::unexpected(std::move(modules).error().Context("guest kernel"));
  auto containers = ReadModules(dir->get(), "containers.list");
  if (!containers) return std::unexpected(std::move(containers).error().Context("guest kernel"));
  vm->containers = ::faccessat(dir->get(), "containers.list", F_OK, 0) == 0;
  vm->modules = !modules->empty();
  vm->tsc_khz = MeasureTscKhz();
  vm->templates.used = options.vm_restore;
  vm->templates.most_mib = (static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) >> 20) / 8;
  SB_TRY(vm->version, Identify(vm->program.get()));
  vm->cpu = HostCpu();
  Checksum sum;
  sum.Add(*kernel);
  vm->kernel = sum.Hex();
  vm->jail_tree = std::string(kMountDir) + "/qemu";
  SB_TRY(vm->filter, os::BuildVmmFilter());
  std::string initramfs = MakeInitramfs(agent, *modules, *containers);
  SB_TRYV(FillJailTree(*vm, *kernel, initramfs));
  std::string about = ReadTrusted(dir->get(), "about").value_or("unknown");
  log::Info("microvm: guest kernel {} ({})", about.substr(0, about.find('\n')), options.kernel);
  vm->kvm = KvmKnownToWork(*vm, options.kernel + "/kernel");
  SB_TRYV(SealJailTree(*vm));
  return vm;
}

}  // namespace sandbar::spawner
