// Class 1: the agent is the first process of new namespaces on the host's kernel.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "os/machine_files.h"
#include "os/mounts.h"
#include "os/overlay.h"
#include "os/process.h"
#include "spawner/machines/launch.h"
#include "spawner/machines/nesting_watch.h"
#include "spawner/machines/prestarted_init.h"
#include "spawner/machines/root_dir.h"

namespace sandbar::spawner {
namespace {

constexpr int kTtyGroup = 5;

// Everything that the plan's numbers stand for.
struct Preparation {
  os::InitPlan plan;
  Fd dev, pts, shm, sys, hidden;
  std::vector<Fd> command_join, plain;
};

// Where container runtimes keep images and containers; and what they expect to be empty after a start.
constexpr std::array<const char*, 2> kContainerDirs = {"/var/lib/containers", "/var/lib/docker"};
constexpr const char* kRunDir = "/run";

constexpr std::array<const char*, 5> kSized = {"cpuinfo", "meminfo", "stat", "loadavg", "cmdline"};

Result<> MakeMounts(Preparation& p, const Identity& identity, const Limits& limits) {
  std::string base = std::to_string(identity.lease.base());
  SB_TRY(p.dev, os::CloneTree(AT_FDCWD, InMountDir("dev")));
  // Device nodes look like root's inside; kernels before 6.3 cannot and show them as nobody's, which harms nothing.
  if (auto mapped = os::MapIds(p.dev.get(), identity.userns.get()); !mapped && os::KernelAtLeast(6, 3))
    return std::unexpected(std::move(mapped).error().Context("/dev"));
  std::vector<os::MountOption> pts = {{"ptmxmode", "0666"},
                                      {"mode", "0620"},
                                      {"gid", std::to_string(identity.lease.base() + kTtyGroup)},
                                      // The host has one pool of terminals for everybody.
                                      {"max", "256"},
                                      {"newinstance", "", true}};
  SB_TRY(p.pts, os::NewMount("devpts", pts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  uint64_t shm_bytes =
      limits.memory_bytes == 0 ? 64ULL << 20 : std::max<uint64_t>(limits.memory_bytes / 2, 16ULL << 20);
  std::vector<os::MountOption> shm = {
      {"size", std::to_string(shm_bytes)}, {"mode", "1777"}, {"uid", base}, {"gid", base}};
  SB_TRY(p.shm, os::NewMount("tmpfs", shm, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  SB_TRY(std::string size_dir,
         os::EnsureSizeTemplate(InMountDir("sizes"), std::max(limits.vcpus, 1U), limits.memory_bytes));
  // The template's directory seen through the read-only view.
  std::string view = InMountDir("ro") + size_dir.substr(std::string(kMountDir).size());
  SB_TRY(p.sys, os::CloneTree(AT_FDCWD, view + "/sys"));
  for (const char* name : kSized) p.plan.covers.push_back({view + "/proc/" + name, name});
  return {};
}

class NamespacesLaunch : public RootDirLaunch {
  Result<> PrepareNesting(Preparation& p, const LaunchInput& in) {
    const uint32_t base = in.resources->identity.lease.base();
    for (const char* path : kContainerDirs) {
      SB_TRY(Fd mount, root_->MountPlain(*in.resources, path));
      p.plan.mounts.push_back({mount.get(), path});
      p.plain.push_back(std::move(mount));
    }
    SB_TRYV(os::MakePathInside(root_->root(), kRunDir, base));
    const std::string owner = std::to_string(base);
    std::vector<os::MountOption> options = {
        {"size", std::to_string(std::max<uint64_t>(in.limits.memory_bytes / 4, 16 << 20))},
        {"mode", "0755"},
        {"uid", owner},
        {"gid", owner}};
    SB_TRY(Fd run, os::NewMount("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
    p.plan.mounts.push_back({run.get(), kRunDir});
    p.plain.push_back(std::move(run));
    SB_TRY(p.hidden, os::CloneTree(AT_FDCWD, InMountDir("ro/hidden")));
    p.plan.hidden = p.hidden.get();
    SB_TRY(os::CgroupDelegation groups, in.resources->group->Delegate(base));
    SB_TRY(in.resources->init, StartNestingInit(*in.host, *in.resources, groups));
    p.command_join = std::move(groups.commands);
    return {};
  }

  // A machine that cannot be watched ends before anything of a guest's has run in it.
  void Guard(const std::string& machine, const os::Child& child) {
    auto watch = NestingWatch::Start(child.pid, child.pidfd.get());
    if (watch) {
      watch_ = std::move(*watch);
      return;
    }
    log::Error("machine {}: {}", machine, watch.error().message);
    if (auto killed = os::SendSignal(child.pidfd.get(), SIGKILL); !killed) log::Error("{}", killed.error().message);
  }

  // What the agent gets: its socket and the files of its commands' control groups.
  static void AddKept(Preparation& p, const LaunchInput& in) {
    std::string list;
    p.plan.keep.push_back(in.listener);
    for (const Fd& fd : p.command_join) {
      p.plan.keep.push_back(fd.get());
      list += (list.empty() ? "" : ",") + std::to_string(p.plan.keep.size() + 2);
    }
    if (!in.host->stage) return;
    p.plan.agent = in.host->agent.get();
    p.plan.argv = {"sandbar-guest", "--listen-fd", "3", "--join-fds", list};
  }

 public:
  Result<os::Child> Start(const LaunchInput& in, const ConfigureReq& request) override {
    Preparation p;
    root_ = std::make_unique<RootDir>(in.host);
    SB_TRYV(root_->Mount(*in.resources, request));
    SB_TRYV(MakeMounts(p, in.resources->identity, in.limits));
    if (in.facts->nesting) {
      SB_TRYV(PrepareNesting(p, in));
    } else {
      SB_TRY(p.command_join, in.resources->group->OpenCommandJoin());
    }
    SB_TRYV(root_->MountDrives(*in.resources, request));
    // Before the others: what containers need may have its place on a drive.
    auto first = p.plan.mounts.begin();
    for (const MountedDrive& drive : root_->drives())
      first = std::next(p.plan.mounts.insert(first, {drive.mount.get(), drive.path}));
    AddKept(p, in);
    p.plan.userns = in.resources->identity.userns.get();
    p.plan.root = root_->root();
    p.plan.dev = p.dev.get();
    p.plan.pts = p.pts.get();
    p.plan.shm = p.shm.get();
    p.plan.sys = p.sys.get();
    p.plan.mount_point = InMountDir("mp");
    p.plan.hostname = HostnameOf(request);
    if (in.cpus != nullptr) p.plan.cpus = *in.cpus;
    auto child = std::exchange(in.resources->init, {}).Enter(p.plan);
    root_->Detach();
    if (child && in.facts->nesting) Guard(in.facts->id, *child);
    return child;
  }
  std::string LastWords() override { return watch_.Reason(); }

 private:
  NestingWatch watch_;  // of a machine that runs containers
};

}  // namespace

std::unique_ptr<Launch> NewNamespacesLaunch() {
  return std::make_unique<NamespacesLaunch>();
}

}  // namespace sandbar::spawner
