// An initramfs as bytes: the agent as /init, the directories it mounts on, and the modules of a kernel that needs them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sandbar::spawner {

// `modules`: names and contents, in the order in which they are to be loaded.
std::string MakeInitramfs(const std::string& agent, const std::vector<std::pair<std::string, std::string>>& modules);

}  // namespace sandbar::spawner
