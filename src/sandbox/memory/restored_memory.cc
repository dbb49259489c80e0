#include "sandbox/memory/restored_memory.h"

#include <algorithm>

namespace sandbar::sandbox {

// A cell that ran meanwhile may be half in the one copy and half in the other.
std::vector<KeptContext> StillIdle(std::vector<KeptContext> before, const std::vector<KeptContext>& after) {
  std::erase_if(before, [&](const KeptContext& c) {
    return std::ranges::none_of(
        after, [&](const KeptContext& now) { return now.command == c.command && now.count == c.count; });
  });
  return before;
}

}  // namespace sandbar::sandbox
