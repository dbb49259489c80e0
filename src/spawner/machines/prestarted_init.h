// Starts the first process of a class 1 machine before there is an image (os/child.h).
#pragma once

#include "base/result.h"
#include "os/cgroup.h"
#include "os/child.h"
#include "spawner/machines/resources.h"

namespace sandbar::spawner {

// In this control group and this network, with this page of disk figures or none.
Result<os::PrestartedInit> StartInit(const HostResources& host, const os::MachineCgroup& group,
                                     const os::MachineNet& net, const protocol::FiguresFds& figures);
// For a machine that runs containers.
Result<os::PrestartedInit> StartNestingInit(const HostResources& host, const MachineResources& resources,
                                            const os::CgroupDelegation& groups);

}  // namespace sandbar::spawner
