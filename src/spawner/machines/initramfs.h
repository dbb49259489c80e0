// An initramfs as bytes: the agent as /init, the directories it mounts on, and the modules of a kernel that needs them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sandbar::spawner {

// Names and contents, in the order in which they are to be loaded.
using Modules = std::vector<std::pair<std::string, std::string>>;

// `containers`: for machines that run some.
std::string MakeInitramfs(const std::string& agent, const Modules& modules, const Modules& containers = {});

}  // namespace sandbar::spawner
