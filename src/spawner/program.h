// sandbar-spawner: the privileged half of the server. Prepares, detaches from whoever started it, serves.
#pragma once

#include <string>
#include <vector>

namespace sandbar::spawner {

// The program. Its exit status: 0 when the detached process listens (or another spawner already serves the directory),
// 2 with the reason on stderr when it cannot. In the detached process, and with --foreground, it returns at the end.
int RunSpawner(const std::vector<std::string>& args);

}  // namespace sandbar::spawner
