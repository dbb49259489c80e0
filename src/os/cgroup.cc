#include "os/cgroup.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <string_view>

#include "os/cgroup_trees.h"

namespace sandbar::os {

MachineCgroup::~MachineCgroup() = default;
CgroupTree::~CgroupTree() = default;

bool IsCgroupName(const std::string& name) {
  auto good = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), good);
}

uint64_t ShareCpuQuotaUs(const CgroupTreeOptions& options) {
  return std::max<uint64_t>(kCpuPeriodUs * options.host.cpus * static_cast<uint64_t>(options.host_share_percent) / 100,
                            1000);
}

uint64_t ShareMemory(const CgroupTreeOptions& options) {
  return options.host.memory_bytes / 100 * static_cast<uint64_t>(options.host_share_percent) / 4096 * 4096;
}

uint64_t CpuQuotaUs(uint32_t vcpus, uint64_t share_quota_us) {
  return std::min<uint64_t>(uint64_t{std::max(vcpus, 1u)} * kCpuPeriodUs, share_quota_us);
}

namespace {

// "4:memory:/sandbar/i/m/cmds": is the controller's path `group` or below it?
bool IsMember(std::string_view proc_cgroup, std::string_view controller, std::string_view group) {
  while (!proc_cgroup.empty()) {
    size_t n = std::min(proc_cgroup.find('\n'), proc_cgroup.size());
    std::string_view line = proc_cgroup.substr(0, n);
    proc_cgroup.remove_prefix(std::min(n + 1, proc_cgroup.size()));
    size_t first = line.find(':');
    size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    std::string list = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    if (list.find("," + std::string(controller) + ",") == std::string::npos) continue;
    std::string_view path = line.substr(second + 1);
    return path.ends_with(group) || path.find(std::string(group) + "/") != std::string_view::npos;
  }
  return false;
}

}  // namespace

int KillListed(const CgroupFs& fs, const std::string& procs_file, const std::string& controller,
               const std::string& group) {
  auto text = fs.Read(procs_file);
  if (!text) return 0;
  int killed = 0;
  const char* at = text->data();
  const char* end = at + text->size();
  while (at < end) {
    int pid = 0;
    auto [next, err] = std::from_chars(at, end, pid);
    at = std::min(next + 1, end);
    if (err != std::errc() || pid <= 1) continue;
    Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd) continue;
    // Looked up after the pidfd was made: if it is a member now, the pidfd is of a member.
    auto member = fs.Read("/proc/" + std::to_string(pid) + "/cgroup");
    if (!member || !IsMember(*member, controller, group)) continue;
    if (::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0) == 0) ++killed;
  }
  return killed;
}

namespace {

void Rest(int half_milliseconds) {
  const timespec pause{0, half_milliseconds * 500'000L};
  ::nanosleep(&pause, nullptr);
}

}  // namespace

Result<bool> TryFreeze(const Freezer& freezer, bool frozen, int tries) {
  SB_TRYV(freezer.set(frozen));
  for (int i = 0; i < tries; ++i) {
    SB_TRY(bool now, freezer.frozen());
    if (now == frozen) return true;
    Rest(1);
  }
  return false;
}

Result<> FreezeInTurns(const Freezer& freezer, bool frozen) {
  constexpr int kShort = 20, kLong = 160;  // long: for a process that waits for a disk
  for (int tries : {kShort, kShort, kLong}) {
    SB_TRY(bool done, TryFreeze(freezer, frozen, tries));
    if (done) return {};
    if (!frozen || tries == kLong) continue;
    SB_TRYV(freezer.set(false));
    Rest(4);
  }
  return Fail(Code::kUnavailable, frozen ? "the machine is not paused yet" : "the machine does not go on yet");
}

Result<> MakeDelegated(CgroupFs& fs, const std::string& dir, uint32_t owner) {
  SB_TRYV(fs.MakeDir(dir));
  SB_TRYV(fs.Write(dir + "/cgroup.max.descendants", std::to_string(kMaxDelegatedGroups)));
  SB_TRYV(fs.Write(dir + "/cgroup.max.depth", std::to_string(kMaxDelegatedDepth)));
  SB_TRYV(fs.MakeDir(dir + "/init"));
  SB_TRYV(fs.GiveAway(dir + "/init", owner));
  return fs.GiveAway(dir, owner);
}

Result<std::unique_ptr<CgroupTree>> CgroupTree::Open(const std::string& instance, int host_share_percent) {
  if (!IsCgroupName(instance)) return Fail(Code::kBadRequest, "bad instance name for a cgroup");
  if (host_share_percent < 1 || host_share_percent > 100) return Fail(Code::kBadRequest, "host share is 1 to 100");
  auto fs = std::make_unique<CgroupFs>();
  SB_TRY(std::string mountinfo, fs->Read("/proc/self/mountinfo"));
  SB_TRY(std::string self, fs->Read("/proc/self/cgroup"));
  CgroupMounts mounts = ParseCgroupMounts(mountinfo, self);
  struct sysinfo info{};
  if (::sysinfo(&info) != 0) return FailErrno("sysinfo");
  CgroupTreeOptions options{.instance = instance,
                            .host_share_percent = host_share_percent,
                            .host = {uint64_t{info.totalram} * info.mem_unit,
                                     static_cast<uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)))}};
  // Hybrid hosts mount an empty version 2 beside version 1: what has the memory controller decides.
  bool v1_memory = std::any_of(mounts.v1.begin(), mounts.v1.end(), [](const auto& m) {
    return std::find(m.controllers.begin(), m.controllers.end(), "memory") != m.controllers.end();
  });
  if (v1_memory) return OpenCgroup1(std::move(fs), mounts, options);
  if (!mounts.v2.empty()) return OpenCgroup2(std::move(fs), mounts, options);
  return Fail(Code::kUnsupported, "no cgroup hierarchy with a memory controller is mounted (expected /sys/fs/cgroup)");
}

}  // namespace sandbar::os
