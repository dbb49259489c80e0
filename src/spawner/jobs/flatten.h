// Several snapshot layers made into one that shows the same over any image: chains of layers cost time at every mount
// and every lookup. Follows overlay's own rules (whiteouts, opaque and redirected directories). The trees were written
// by guests: everything is opened by directory fd, no link is followed, depth is bounded. Run in a process of its own.
#pragma once

#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::spawner {

// `layers`: directories, topmost first. `target`: an empty directory on the same filesystem (file contents are shared
// with the sources where the filesystem can).
Result<> FlattenLayers(const std::vector<Fd>& layers, int target);

}  // namespace sandbar::spawner
