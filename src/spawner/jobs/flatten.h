// Merges several snapshot layers into one that shows the same files over any image, because a chain of layers costs
// time at every mount and every lookup. Follows overlay's rules (whiteouts, opaque and redirected directories). Guests
// wrote the trees: everything is opened by directory fd, no link is followed, depth is bounded. Call it in a process of
// its own.
#pragma once

#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::spawner {

// `layers`: directories, topmost first. `target`: an empty directory on the same filesystem (file contents are shared
// with the sources where the filesystem can).
Result<> FlattenLayers(const std::vector<Fd>& layers, int target);

}  // namespace sandbar::spawner
