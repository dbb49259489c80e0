#include "spawner/machines/prestarted_init.h"

#include "os/caps.h"
#include "os/machine_files.h"
#include "spawner/host_resources.h"
#include "spawner/machines/root_dir.h"

namespace sandbar::spawner {
namespace {

std::vector<int> NumbersOf(const std::vector<Fd>& fds) {
  std::vector<int> out;
  for (const Fd& fd : fds) out.push_back(fd.get());
  return out;
}

os::EntryStart CommonStart() {
  os::EntryStart start;
  start.proc_at = InMountDir("proc");
  for (const char* name : os::MaskedProcFiles()) start.covers.push_back({InMountDir("ro/empty"), name});
  for (const char* name : os::MaskedProcDirs()) start.covers.push_back({InMountDir("ro/nothing"), name});
  for (const char* path : os::ReadOnlyProcPaths()) start.read_only.emplace_back(path);
  return start;
}

int ProgramOf(const HostResources& host) {
  return host.stage ? host.stage.get() : host.agent.get();
}

}  // namespace

Result<os::PrestartedInit> StartInit(const HostResources& host, const os::MachineCgroup& group,
                                     const os::MachineNet& net) {
  os::EntryStart start = CommonStart();
  SB_TRY(const std::vector<Fd> join, group.OpenAgentJoin());
  start.join = NumbersOf(join);
  start.netns = net.netns.get();
  start.filter = host.filter;
  start.capabilities = os::kGuestCapabilities;
  return os::PrestartedInit::Start(ProgramOf(host), start);
}

Result<os::PrestartedInit> StartNestingInit(const HostResources& host, const MachineResources& resources,
                                            const os::CgroupDelegation& groups) {
  os::EntryStart start = CommonStart();
  SB_TRY(const std::vector<Fd> join, resources.group->OpenAgentJoin());
  start.join = NumbersOf(join);
  start.netns = resources.net.inner.get();
  start.filter = host.nesting_filter;
  start.capabilities = os::kNestingCapabilities;
  start.nesting = true;
  start.group_root = NumbersOf(groups.root);
  start.group_home = NumbersOf(groups.agent);
  return os::PrestartedInit::Start(ProgramOf(host), start);
}

}  // namespace sandbar::spawner
