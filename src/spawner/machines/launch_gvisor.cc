// Class 2: the agent runs on gVisor's kernel, which is a process of the host in a jail of its own.
#include "spawner/machines/gvisor.h"
#include "spawner/machines/launch.h"
#include "spawner/machines/root_dir.h"

namespace sandbar::spawner {
namespace {

// gVisor puts a filesystem of its own over an empty /tmp, whose files would not be part of a snapshot. So something is
// there: the directory with the agent.
constexpr const char* kAgentDir = "/tmp/.sandbar";

// There are no setuid files: sudo asks the agent (src/guest/preload.c, guest/elevations.h). In a filesystem of gVisor's
// own.
constexpr const char* kSudoSocket = "/dev/.sandbar-sudo";

// gVisor's own: its heap, and the threads of its two programs.
constexpr uint64_t kKernelMemory = 64 << 20;
constexpr uint32_t kKernelThreads = 256;
constexpr uint32_t kTasks = 6;  // of the host, for a process of the guest: 4 to 8 were seen

// What gVisor mounts by itself, and the agent, stay what they are. The rest of a path is looked up in the guest's
// kernel, where nothing but the guest's own tree can be found.
Result<> CheckPlace(const std::string& path) {
  for (const std::string& taken :
       {std::string("/proc"), std::string("/dev"), std::string("/sys"), std::string(kAgentDir)}) {
    if (path == taken || path.starts_with(taken + "/"))
      return Fail(Code::kBadRequest, path + " is no place for a drive");
  }
  return {};
}

class GvisorLaunch : public RootDirLaunch {
 public:
  os::CgroupLimits GroupLimits(const Limits& l) const override {
    return {l.vcpus, l.memory_bytes == 0 ? 0 : l.memory_bytes + kKernelMemory,
            l.pids == 0 ? 0 : l.pids * kTasks + kKernelThreads};
  }

  Result<os::Child> Start(const LaunchInput& in, const ConfigureReq& request) override {
    for (const DriveMount& mount : request.mounts) SB_TRYV(CheckPlace(mount.path));
    root_ = std::make_unique<RootDir>(in.host);
    SB_TRYV(root_->Mount(*in.resources, request, InMountDir("below")));
    GvisorJail jail;
    jail.host = in.host;
    jail.resources = in.resources;
    jail.runsc = in.host->gvisor.runsc.get();
    jail.flags = in.host->gvisor.flags;
    jail.root = root_->root();
    jail.hostname = HostnameOf(request);
    jail.limits = in.limits;
    jail.listener = in.listener;
    jail.cpus = in.cpus;
    jail.args = {std::string(kAgentDir) + "/agent",
                 "--stream-fd",
                 "0",
                 "--elevate",
                 "/usr/bin/sudo",
                 "--elevate-at",
                 kSudoSocket};
    jail.binds.push_back({"/agent", kAgentDir, false});
    SB_TRYV(root_->MountDrives(*in.resources, request));
    std::vector<std::string> places;
    places.reserve(request.mounts.size());
    for (size_t i = 0; i < request.mounts.size(); ++i) {
      places.push_back("drives/" + std::to_string(i));
      jail.drives.push_back({root_->drives()[i].mount.get(), places.back().c_str()});
      jail.binds.push_back({"/" + places.back(), request.mounts[i].path, request.mounts[i].writable});
    }
    auto child = StartGvisorJail(jail);
    root_->Detach();
    return child;
  }

  Result<bool> ReadStatus(int status) override { return os::ReadJailStatus(status); }
};

}  // namespace

std::unique_ptr<Launch> NewGvisorLaunch() {
  return std::make_unique<GvisorLaunch>();
}

}  // namespace sandbar::spawner
