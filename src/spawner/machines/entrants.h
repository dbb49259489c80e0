// The processes that wait for machines of class 1 (os/child.h): what they are told before there is an image.
#pragma once

#include "base/result.h"
#include "os/cgroup.h"
#include "os/child.h"
#include "spawner/machines/resources.h"

namespace sandbar::spawner {

// In the control group and the network of these resources.
Result<os::Entrant> StartEntrant(const HostResources& host, const os::MachineCgroup& group, const os::MachineNet& net);
// For a machine that runs containers.
Result<os::Entrant> StartNestingEntrant(const HostResources& host, const MachineResources& resources,
                                        const os::CgroupDelegation& groups);

}  // namespace sandbar::spawner
