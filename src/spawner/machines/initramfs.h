// An initramfs as bytes: the agent as /init, the directories it mounts on, and the modules of a kernel that needs them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sandbar::spawner {

// Names and contents of kernel modules, in the order in which the agent loads them.
using Modules = std::vector<std::pair<std::string, std::string>>;

// `containers`: modules for machines that run containers.
std::string MakeInitramfs(const std::string& agent, const Modules& modules, const Modules& containers = {});

}  // namespace sandbar::spawner
