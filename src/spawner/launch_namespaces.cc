// Class 1: the agent is the first process of new namespaces on the host's kernel.
#include <fcntl.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>

#include "os/machine_files.h"
#include "os/mounts.h"
#include "os/overlay.h"
#include "os/process.h"
#include "spawner/launch.h"
#include "spawner/root_dir.h"

namespace sandbar::spawner {
namespace {

constexpr int kTtyGroup = 5;

// Everything that the plan points to. The plan is read by the child from its copy of this memory.
struct Preparation {
  std::vector<Fd> join, command_join;
  Fd dev, pts, shm, sys;
  std::vector<os::GuestMount> mounts;
  std::string mount_point = InMountDir("mp");
  std::vector<std::string> cover_sources;
  std::vector<os::ProcCover> covers;
  std::string hostname;
  std::vector<int> join_fds, keep;
  std::string join_list;
  std::array<const char*, 6> argv{};
  sock_fprog filter{};
  os::NestingPlan nesting;
  os::CgroupDelegation groups;
  std::vector<int> group_root, group_home;
  Fd hidden;
  std::vector<Fd> plain;
};

// Where container runtimes keep images and containers; and what they expect to be empty after a start.
constexpr std::array<const char*, 2> kContainerDirs = {"/var/lib/containers", "/var/lib/docker"};
constexpr const char* kRunDir = "/run";

void AddCovers(Preparation& p, const std::string& size_dir) {
  constexpr std::array<const char*, 5> kSized = {"cpuinfo", "meminfo", "stat", "loadavg", "cmdline"};
  p.cover_sources.reserve(kSized.size() + 2);
  for (const char* name : kSized) {
    p.cover_sources.push_back(size_dir + "/proc/" + name);
    p.covers.push_back({p.cover_sources.back().c_str(), name});
  }
  p.cover_sources.push_back(InMountDir("ro/empty"));
  for (const char* name : os::MaskedProcFiles()) p.covers.push_back({p.cover_sources.back().c_str(), name});
  p.cover_sources.push_back(InMountDir("ro/nothing"));
  for (const char* name : os::MaskedProcDirs()) p.covers.push_back({p.cover_sources.back().c_str(), name});
}

Result<> MakeMounts(Preparation& p, const Host& host, const Identity& identity, const Limits& limits) {
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
  AddCovers(p, view);
  p.filter.len = static_cast<unsigned short>(host.filter.size());
  p.filter.filter = const_cast<sock_filter*>(host.filter.data());
  return {};
}

class NamespacesLaunchImpl : public RootDirLaunch {
  Result<> PrepareNesting(Preparation& p, const LaunchInput& in) {
    const uint32_t base = in.parts->identity.lease.base();
    for (const char* path : kContainerDirs) {
      SB_TRY(Fd mount, root_->MountPlain(*in.parts, path));
      p.mounts.push_back({mount.get(), path});
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
    p.mounts.push_back({run.get(), kRunDir});
    p.plain.push_back(std::move(run));
    SB_TRY(p.hidden, os::CloneTree(AT_FDCWD, InMountDir("ro/hidden")));
    p.nesting.hidden = p.hidden.get();
    SB_TRY(p.groups, in.parts->group->Delegate(base));
    for (const Fd& fd : p.groups.root) p.group_root.push_back(fd.get());
    for (const Fd& fd : p.groups.agent) p.group_home.push_back(fd.get());
    p.nesting.group_root = p.group_root;
    p.nesting.group_home = p.group_home;
    p.command_join = std::move(p.groups.commands);
    p.filter.len = static_cast<unsigned short>(in.host->nesting_filter.size());
    p.filter.filter = const_cast<sock_filter*>(in.host->nesting_filter.data());
    return {};
  }

 public:
  Result<os::Child> Start(const LaunchInput& in, const ConfigureReq& request) override {
    Preparation p;
    p.hostname = HostnameOf(request);
    root_ = std::make_unique<RootDir>(in.host);
    SB_TRYV(root_->Mount(*in.parts, in.limits, request));
    for (const MountedDrive& drive : root_->drives()) p.mounts.push_back({drive.mount.get(), drive.path.c_str()});
    SB_TRYV(MakeMounts(p, *in.host, in.parts->identity, in.limits));
    SB_TRY(p.join, in.parts->group->OpenAgentJoin());
    if (in.nesting) {
      SB_TRYV(PrepareNesting(p, in));
    } else {
      SB_TRY(p.command_join, in.parts->group->OpenCommandJoin());
    }
    for (const Fd& fd : p.join) p.join_fds.push_back(fd.get());
    p.keep.push_back(in.listener);
    for (const Fd& fd : p.command_join) {
      p.keep.push_back(fd.get());
      p.join_list += (p.join_list.empty() ? "" : ",") + std::to_string(p.keep.size() + 2);
    }
    p.argv = {"sandbar-guest", "--listen-fd", "3", "--join-fds", p.join_list.c_str(), nullptr};

    os::ChildPlan plan;
    plan.join = p.join_fds;
    plan.nesting = in.nesting ? &p.nesting : nullptr;
    plan.netns = in.nesting ? in.parts->net.inner.get() : in.parts->net.netns.get();
    plan.userns = in.parts->identity.userns.get();
    plan.root = root_->root();
    plan.dev = p.dev.get();
    plan.pts = p.pts.get();
    plan.shm = p.shm.get();
    plan.sys = p.sys.get();
    plan.mounts = p.mounts;
    plan.mount_point = p.mount_point.c_str();
    plan.covers = p.covers;
    plan.read_only = os::ReadOnlyProcPaths();
    plan.hostname = p.hostname.c_str();
    plan.cpus = in.cpus;
    plan.keep = p.keep;
    plan.agent = in.host->agent.get();
    plan.argv = p.argv.data();
    plan.filter = &p.filter;
    auto child = os::StartChild(plan);
    root_->Detach();
    return child;
  }
};

}  // namespace

std::unique_ptr<Launch> NamespacesLaunch() {
  return std::make_unique<NamespacesLaunchImpl>();
}

}  // namespace sandbar::spawner
