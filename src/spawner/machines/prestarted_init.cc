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

os::InitSetup CommonSetup() {
  os::InitSetup setup;
  setup.proc_at = InMountDir("proc");
  for (const char* name : os::MaskedProcFiles()) setup.covers.push_back({InMountDir("ro/empty"), name});
  for (const char* name : os::MaskedProcDirs()) setup.covers.push_back({InMountDir("ro/nothing"), name});
  for (const char* path : os::ReadOnlyProcPaths()) setup.read_only.emplace_back(path);
  return setup;
}

int ProgramOf(const HostResources& host) {
  return host.stage ? host.stage.get() : host.agent.get();
}

}  // namespace

Result<os::PrestartedInit> StartInit(const HostResources& host, const os::MachineCgroup& group,
                                     const os::MachineNet& net, const protocol::FiguresFds& figures) {
  os::InitSetup setup = CommonSetup();
  SB_TRY(const std::vector<Fd> join, group.OpenAgentJoin());
  setup.join = NumbersOf(join);
  setup.netns = net.netns.get();
  setup.filter = host.filter;
  setup.capabilities = os::kGuestCapabilities;
  setup.figures = figures;
  return os::PrestartedInit::Start(ProgramOf(host), setup);
}

Result<os::PrestartedInit> StartNestingInit(const HostResources& host, const MachineResources& resources,
                                            const os::CgroupDelegation& groups) {
  os::InitSetup setup = CommonSetup();
  SB_TRY(const std::vector<Fd> join, resources.group->OpenAgentJoin());
  setup.join = NumbersOf(join);
  setup.netns = resources.net.inner.get();
  setup.filter = host.nesting_filter;
  setup.capabilities = os::kNestingCapabilities;
  setup.nesting = true;
  setup.group_root = NumbersOf(groups.root);
  setup.group_home = NumbersOf(groups.agent);
  return os::PrestartedInit::Start(ProgramOf(host), setup);
}

}  // namespace sandbar::spawner
