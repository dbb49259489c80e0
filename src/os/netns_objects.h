// Objects of a network namespace that the kernel allocates without charging them to a control group: neighbours,
// proxied neighbours, bridge forwarding entries, multicast entries and nexthops. Root of a namespace of its own makes
// as many as it likes. Used by single-threaded processes: the caller visits the namespace for a moment.
//
//   SB_TRY(size_t count, CountUnchargedObjects(netns.get(), 10'000));
#pragma once

#include <cstddef>

#include "base/result.h"

namespace sandbar::os {

// Stops counting soon after `most`.
Result<size_t> CountUnchargedObjects(int netns, size_t most);

}  // namespace sandbar::os
