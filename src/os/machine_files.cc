#include "os/machine_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/files.h"
#include "os/openat.h"

namespace sandbar::os {
namespace {

Result<> WriteFile(int dir, const std::string& path, std::string_view text) {
  // Parents first; every component is ours.
  for (size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
    std::string parent = path.substr(0, at);
    if (::mkdirat(dir, parent.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno("mkdir " + parent);
  }
  Fd fd(::openat(dir, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0444));
  if (!fd) return FailErrno("create " + path);
  if (auto written = WriteAll(fd.get(), text); !written)
    return std::unexpected(std::move(written).error().Context(path));
  return {};
}

// The first processor of the host, as the machine's processor `index` of `count`: what programs choose code paths by
// stays (model, flags), the host's topology and clock of the moment do not.
std::string CpuEntry(std::string_view host_entry, uint32_t index, uint32_t count) {
  std::string out;
  while (!host_entry.empty()) {
    size_t n = std::min(host_entry.find('\n'), host_entry.size());
    std::string_view line = host_entry.substr(0, n);
    host_entry.remove_prefix(std::min(n + 1, host_entry.size()));
    std::string_view key = line.substr(0, line.find(':'));
    while (!key.empty() && (key.back() == '\t' || key.back() == ' ')) key.remove_suffix(1);
    auto own = [&](std::string_view name, uint32_t value) {
      if (key != name) return false;
      out += fmt::format("{}: {}\n", line.substr(0, line.find(':')), value);
      return true;
    };
    if (key.empty() || key == "cpu MHz" || key == "microcode" || key == "bogomips") continue;
    if (own("processor", index) || own("physical id", 0) || own("siblings", count) || own("core id", index) ||
        own("cpu cores", count) || own("apicid", index) || own("initial apicid", index)) {
      continue;
    }
    out += line;
    out += '\n';
  }
  return out + "\n";
}

std::string CpuInfo(std::string_view host, uint32_t vcpus) {
  std::string_view entry = host.substr(0, std::min(host.find("\n\n"), host.size()));
  std::string out;
  for (uint32_t i = 0; i < vcpus; ++i) out += CpuEntry(entry, i, vcpus);
  return out;
}

// A snapshot: an otherwise idle machine of this size. Programs read the total; the limit itself is the cgroup's.
std::string MemInfo(uint64_t memory_bytes) {
  const uint64_t total = memory_bytes / 1024;
  const uint64_t used = std::min<uint64_t>(total / 16, 64 * 1024);
  const uint64_t cached = std::min<uint64_t>(total / 16, 64 * 1024);
  const uint64_t available = total - used;
  std::string out;
  auto line = [&out](std::string_view name, uint64_t kib) {
    out += fmt::format("{:<15} {:>8} kB\n", std::string(name) + ":", kib);
  };
  line("MemTotal", total);
  line("MemFree", available - cached);
  line("MemAvailable", available);
  line("Buffers", 0);
  line("Cached", cached);
  line("SwapCached", 0);
  line("Active", used / 2);
  line("Inactive", cached);
  line("Active(anon)", used / 2);
  line("Inactive(anon)", 0);
  line("Active(file)", 0);
  line("Inactive(file)", cached);
  line("Unevictable", 0);
  line("Mlocked", 0);
  line("SwapTotal", 0);
  line("SwapFree", 0);
  line("Dirty", 0);
  line("Writeback", 0);
  line("AnonPages", used / 2);
  line("Mapped", used / 4);
  line("Shmem", 0);
  line("KReclaimable", 0);
  line("Slab", used / 2);
  line("SReclaimable", 0);
  line("SUnreclaim", used / 2);
  line("KernelStack", 0);
  line("PageTables", 0);
  line("CommitLimit", total / 2);
  line("Committed_AS", used);
  line("VmallocTotal", 34359738367);
  line("VmallocUsed", 0);
  line("VmallocChunk", 0);
  out += "HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        0\nHugePages_Surp:        0\n";
  line("Hugepagesize", 2048);
  return out;
}

// Only the boot time is the host's: `ps` computes start times with it.
std::string Stat(std::string_view host, uint32_t vcpus) {
  std::string_view btime = "btime 0";
  if (size_t at = host.find("\nbtime "); at != std::string_view::npos) {
    btime = host.substr(at + 1, std::min(host.find('\n', at + 1), host.size()) - at - 1);
  }
  std::string out = fmt::format("cpu  0 0 0 {} 0 0 0 0 0 0\n", 1000 * vcpus);
  for (uint32_t i = 0; i < vcpus; ++i) out += fmt::format("cpu{} 0 0 0 1000 0 0 0 0 0 0\n", i);
  return out + fmt::format("intr 0\nctxt 0\n{}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 0\n", btime);
}

// Programs look below /sys/fs/cgroup by what /proc/self/cgroup says, "/../cmds" in some hierarchy: every such path
// leads to the one directory.
Result<> LinkGroups(int dir) {
  for (const char* name : {"memory", "cpu", "cpuacct", "cpu,cpuacct", "cmds", "agent"}) {
    if (::symlinkat(".", dir, (std::string("sys/fs/cgroup/") + name).c_str()) != 0 && errno != EEXIST)
      return FailErrno("symlink");
  }
  for (const char* name : {"sys/fs/cmds", "sys/fs/agent"}) {
    if (::symlinkat("cgroup", dir, name) != 0 && errno != EEXIST) return FailErrno("symlink");
  }
  return {};
}

Result<> WriteSys(int dir, uint32_t vcpus, uint64_t memory_bytes) {
  const std::string range = vcpus == 1 ? "0\n" : fmt::format("0-{}\n", vcpus - 1);
  const std::string cpu = "sys/devices/system/cpu/";
  for (const char* name : {"online", "present", "possible"}) SB_TRYV(WriteFile(dir, cpu + name, range));
  SB_TRYV(WriteFile(dir, cpu + "offline", "\n"));
  SB_TRYV(WriteFile(dir, cpu + "kernel_max", fmt::format("{}\n", vcpus - 1)));
  for (uint32_t i = 0; i < vcpus; ++i) {
    const std::string one = fmt::format("{}cpu{}/", cpu, i);
    SB_TRYV(WriteFile(dir, one + "online", "1\n"));
    SB_TRYV(WriteFile(dir, one + "topology/core_id", fmt::format("{}\n", i)));
    SB_TRYV(WriteFile(dir, one + "topology/physical_package_id", "0\n"));
    SB_TRYV(WriteFile(dir, one + "topology/thread_siblings_list", fmt::format("{}\n", i)));
    SB_TRYV(WriteFile(dir, one + "topology/core_siblings_list", range));
  }
  SB_TRYV(WriteFile(dir, "sys/devices/system/node/online", "0\n"));
  SB_TRYV(WriteFile(dir, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"));
  SB_TRYV(WriteFile(dir, "sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n"));
  // What container-aware runtimes (the JVM, node, Go, .NET) read to size themselves.
  const std::string group = "sys/fs/cgroup/";
  SB_TRYV(WriteFile(dir, group + "cgroup.controllers", "cpu memory pids\n"));
  SB_TRYV(WriteFile(dir, group + "cgroup.subtree_control", "\n"));
  SB_TRYV(WriteFile(dir, group + "memory.max", fmt::format("{}\n", memory_bytes)));
  SB_TRYV(WriteFile(dir, group + "memory.high", "max\n"));
  SB_TRYV(WriteFile(dir, group + "memory.swap.max", "0\n"));
  SB_TRYV(WriteFile(dir, group + "cpu.max", fmt::format("{} 100000\n", uint64_t{vcpus} * 100000)));
  SB_TRYV(WriteFile(dir, group + "cpu.weight", "100\n"));
  SB_TRYV(WriteFile(dir, group + "memory.limit_in_bytes", fmt::format("{}\n", memory_bytes)));
  SB_TRYV(WriteFile(dir, group + "memory.soft_limit_in_bytes", fmt::format("{}\n", memory_bytes)));
  SB_TRYV(WriteFile(dir, group + "cpu.cfs_quota_us", fmt::format("{}\n", uint64_t{vcpus} * 100000)));
  SB_TRYV(WriteFile(dir, group + "cpu.cfs_period_us", "100000\n"));
  SB_TRYV(LinkGroups(dir));
  for (const char* empty : {"sys/class/net", "sys/block", "sys/bus", "sys/module", "sys/firmware"}) {
    SB_TRYV(WriteFile(dir, std::string(empty) + "/.keep", ""));
    if (::unlinkat(dir, (std::string(empty) + "/.keep").c_str(), 0) != 0) return FailErrno("unlink");
  }
  return {};
}

Result<> WriteProc(int dir, uint32_t vcpus, uint64_t memory_bytes) {
  SB_TRY(std::string cpuinfo, ReadFile("/proc/cpuinfo", kLargestFile));
  SB_TRY(std::string stat, ReadFile("/proc/stat", kLargestFile));
  SB_TRYV(WriteFile(dir, "proc/cpuinfo", CpuInfo(cpuinfo, vcpus)));
  SB_TRYV(WriteFile(dir, "proc/meminfo", MemInfo(memory_bytes)));
  SB_TRYV(WriteFile(dir, "proc/stat", Stat(stat, vcpus)));
  SB_TRYV(WriteFile(dir, "proc/loadavg", "0.00 0.00 0.00 1/1 1\n"));
  return WriteFile(dir, "proc/cmdline", "quiet\n");
}

struct Device {
  const char* name;
  unsigned major, minor;
};
constexpr Device kDevices[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                               {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
constexpr const char* kLinks[][2] = {{"pts/ptmx", "ptmx"},
                                     {"/proc/self/fd", "fd"},
                                     {"/proc/self/fd/0", "stdin"},
                                     {"/proc/self/fd/1", "stdout"},
                                     {"/proc/self/fd/2", "stderr"}};

Result<> FillDev(int dir) {
  for (const Device& d : kDevices) {
    if (::mknodat(dir, d.name, S_IFCHR | 0666, ::makedev(d.major, d.minor)) != 0) return FailErrno("mknod");
    // mknod applies the umask.
    if (::fchmodat(dir, d.name, 0666, 0) != 0) return FailErrno("chmod");
  }
  for (const char* name : {"pts", "shm", "mqueue"}) {
    if (::mkdirat(dir, name, 0755) != 0) return FailErrno("mkdir in /dev");
  }
  for (const auto& [target, name] : kLinks) {
    if (::symlinkat(target, dir, name) != 0) return FailErrno("symlink in /dev");
  }
  return {};
}

// Host facts, host controls, or interfaces with a history of holes.
constexpr const char* kMaskedFiles[] = {
    "kcore",       "kmsg",         "kallsyms",      "keys",          "key-users",    "timer_list", "timer_stats",
    "sched_debug", "schedstat",    "latency_stats", "sysrq-trigger", "interrupts",   "softirqs",   "slabinfo",
    "vmallocinfo", "pagetypeinfo", "zoneinfo",      "buddyinfo",     "vmstat",       "iomem",      "ioports",
    "modules",     "config.gz",    "mtrr",          "diskstats",     "partitions",   "swaps",      "consoles",
    "crypto",      "devices",      "dma",           "execdomains",   "locks",        "misc",       "mdstat",
    "kpagecgroup", "kpagecount",   "kpageflags",    "cgroups",       "fb",           "lockdep",    "lockdep_stats",
    "lock_stat",   "bootconfig",   "page_owner",    "allocinfo",     "dynamic_debug"};
constexpr const char* kMaskedDirs[] = {"acpi", "asound",      "bus",     "driver",   "dynamic_debug", "fs",
                                       "ide",  "irq",         "mpt",     "pressure", "scsi",          "tty/driver",
                                       "xen",  "device-tree", "powerpc", "sgi_uv"};
constexpr const char* kReadOnly[] = {"sys"};

bool ExistsAs(const char* name, bool directory) {
  struct stat st{};
  if (::lstat((std::string("/proc/") + name).c_str(), &st) != 0) return false;
  return S_ISDIR(st.st_mode) == directory;
}

template <size_t N>
std::vector<const char*> Present(const char* const (&names)[N], bool directory) {
  std::vector<const char*> out;
  for (const char* name : names) {
    if (ExistsAs(name, directory)) out.push_back(name);
  }
  return out;
}

}  // namespace

Result<std::string> EnsureSizeTemplate(const std::string& dir, uint32_t vcpus, uint64_t memory_bytes) {
  if (vcpus == 0 || vcpus > 1024 || memory_bytes < (1u << 20)) return Fail(Code::kBadRequest, "bad machine size");
  const std::string made = fmt::format("{}/{}x{}", dir, vcpus, memory_bytes >> 20);
  if (::access(made.c_str(), F_OK) == 0) return made;
  // Filled under another name and then renamed, so that what exists is complete.
  const std::string draft = fmt::format("{}/.draft-{}", dir, ::getpid());
  if (::mkdir(draft.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno("mkdir " + draft);
  Fd fd(::open(draft.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return FailErrno("open " + draft);
  SB_TRYV(WriteProc(fd.get(), vcpus, memory_bytes));
  SB_TRYV(WriteSys(fd.get(), vcpus, memory_bytes));
  if (::rename(draft.c_str(), made.c_str()) != 0) return FailErrno("rename " + draft);
  return made;
}

Result<Fd> MakeDevTemplate() {
  Fd config(static_cast<int>(::syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC)));
  if (!config) return FailErrno("fsopen tmpfs");
  for (const auto& [key, value] : {std::pair("mode", "0755"), std::pair("size", "64k"), std::pair("nr_inodes", "64")}) {
    if (::syscall(SYS_fsconfig, config.get(), FSCONFIG_SET_STRING, key, value, 0) != 0) return FailErrno("fsconfig");
  }
  if (::syscall(SYS_fsconfig, config.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) return FailErrno("tmpfs");
  Fd mount(
      static_cast<int>(::syscall(SYS_fsmount, config.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)));
  if (!mount) return FailErrno("fsmount tmpfs");
  SB_TRYV(FillDev(mount.get()));
  mount_attr attr{};
  attr.attr_set = MOUNT_ATTR_RDONLY;
  if (::syscall(SYS_mount_setattr, mount.get(), "", AT_EMPTY_PATH, &attr, sizeof attr) != 0) {
    return FailErrno("make /dev read-only");
  }
  return mount;
}

std::span<const char* const> MaskedProcFiles() {
  static const std::vector<const char*> present = Present(kMaskedFiles, false);
  return present;
}

std::span<const char* const> MaskedProcDirs() {
  static const std::vector<const char*> present = Present(kMaskedDirs, true);
  return present;
}

std::span<const char* const> ReadOnlyProcPaths() {
  static const std::vector<const char*> present = Present(kReadOnly, true);
  return present;
}

}  // namespace sandbar::os
