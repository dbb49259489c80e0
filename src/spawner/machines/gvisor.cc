#include "spawner/machines/gvisor.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/machine_files.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "spawner/host_resources.h"
#include "spawner/machines/gvisor_config.h"
#include "spawner/machines/root_dir.h"

namespace sandbar::spawner {
namespace {

// What the plan points to.
struct Preparation {
  std::vector<Fd> join, command_join;
  Fd tree, dev, agent, runsc;
  std::vector<os::JailMount> mounts;
  std::vector<os::ProcCover> covers;
  std::vector<int> join_fds, keep;
  std::vector<std::string> words;
  std::vector<const char*> argv;
  HolderPlan holder;
  std::vector<sock_filter> filter;
};

// The tree of the jail: a tmpfs that goes with it. Nothing in it was written by a guest, and a guest sees of it what
// the OCI configuration names. runsc's state lies in it, so no two machines share any.
Result<> MakeTree(Preparation& p, const GvisorJail& jail) {
  std::vector<os::MountOption> options = {{"mode", "0755"}, {"size", "4m"}};
  SB_TRY(p.tree, os::NewMount("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  const int tree = p.tree.get();
  for (const char* name : {"proc", "visible", "root", "agent", "dev", "empty", "drives", "tmp"})
    SB_TRYV(os::EnsureDir(tree, name, 0755));
  const uint32_t base = jail.resources->identity.lease.base();
  SB_TRYV(os::EnsureDir(tree, "state", 0700, base, base));
  SB_TRYV(os::WriteFileAt(tree, "config.json", GvisorConfig(jail), 0444));
  SB_TRY(p.dev, os::CloneTree(AT_FDCWD, InMountDir("dev")));
  SB_TRY(p.agent, os::CloneTree(AT_FDCWD, InMountDir("gvisor")));
  SB_TRYV(os::SetMountAttributes(p.agent.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  // It executes itself again by its path.
  SB_TRYV(os::WriteFileAt(tree, "runsc", "", 0555));
  SB_TRY(p.runsc, os::CloneTree(AT_FDCWD, "/proc/self/fd/" + std::to_string(jail.runsc)));
  SB_TRYV(os::SetMountAttributes(p.runsc.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  p.mounts = {{jail.root, "root"}, {p.dev.get(), "dev"}, {p.agent.get(), "agent"}, {p.runsc.get(), "runsc"}};
  for (const os::JailMount& drive : jail.drives) {
    // drives/0, drives/1, …
    SB_TRYV(os::EnsureDir(tree, drive.path, 0755));
    p.mounts.push_back(drive);
  }
  // Where the guest learns its size from.
  SB_TRY(std::string size_dir,
         os::EnsureSizeTemplate(InMountDir("sizes"), std::max(jail.limits.vcpus, 1U), jail.limits.memory_bytes));
  SB_TRY(std::string meminfo, os::ReadFile(size_dir + "/proc/meminfo", 1 << 16));
  SB_TRYV(os::WriteFileAt(tree, "meminfo", meminfo, 0444));
  p.covers = {{"/meminfo", "/proc/meminfo"},
              // By what is in there runsc wants to tell the host's network from others, and newer kernels show it in
              // all of them.
              {"/empty", "/proc/sys/net/core"}};
  return {};
}

void MakeCommand(Preparation& p, const GvisorJail& jail) {
  // Files are shared although nobody else has them: otherwise what was written, and when, is in runsc's memory only
  // until somebody asks for a sync, and gone with it when it is killed.
  p.words = {"/runsc",          "--root=/state",        "--ignore-cgroups",           "--network=sandbox",
             "--overlay2=none", "--file-access=shared", "--file-access-mounts=shared"};
  p.words.insert(p.words.end(), jail.flags.begin(), jail.flags.end());
  p.words.emplace_back("run");
  if (!jail.probe) p.words.emplace_back("--detach");
  if (!jail.probe) p.words.push_back(std::string("--pid-file=") + kHolderPidFile);
  p.words.emplace_back("--bundle=/");
  p.words.emplace_back("machine");
  for (const auto& word : p.words) p.argv.push_back(word.c_str());
  p.argv.push_back(nullptr);
}

}  // namespace

Result<os::Child> StartGvisorJail(const GvisorJail& jail) {
  Preparation p;
  SB_TRYV(MakeTree(p, jail));
  MakeCommand(p, jail);
  SB_TRY(p.join, jail.resources->group->OpenAgentJoin());
  SB_TRY(p.command_join, jail.resources->group->OpenCommandJoin());
  if (p.command_join.size() > kMaxCommandJoin) return Fail(Code::kInternal, "too many control groups");
  for (const Fd& fd : p.join) p.join_fds.push_back(fd.get());
  if (!jail.probe) {
    p.holder.listener = 3;
    p.keep.push_back(jail.listener);
  }
  for (const Fd& fd : p.command_join) {
    p.holder.join.at(p.holder.joins++) = static_cast<int>(p.keep.size()) + 3;
    p.keep.push_back(fd.get());
  }
  p.holder.argv = p.argv.data();

  os::JailPlan plan;
  const std::string mount_point = InMountDir("mp");
  plan.join = p.join_fds;
  plan.netns = jail.resources->net.inner.get();
  plan.userns = jail.resources->identity.userns.get();
  plan.root = p.tree.get();
  plan.mount_point = mount_point.c_str();
  plan.mounts = p.mounts;
  plan.covers = p.covers;
  plan.cpus = jail.cpus;
  plan.keep = p.keep;
  SB_TRY(p.filter, os::BuildJailFilter());
  const sock_fprog filter{static_cast<unsigned short>(p.filter.size()), p.filter.data()};
  plan.filter = &filter;
  plan.body = jail.probe ? RunProbe : RunHolder;
  plan.argument = &p.holder;
  return os::StartJail(plan);
}

}  // namespace sandbar::spawner
