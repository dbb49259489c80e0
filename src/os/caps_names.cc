#include <linux/capability.h>
#include <sys/capability.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "os/caps.h"

namespace sandbar::os {

std::vector<std::string> CapabilityNames(uint64_t set) {
  std::vector<std::string> names;
  for (int c = 0; c <= CAP_LAST_CAP; ++c) {
    if ((set >> c & 1) == 0) continue;
    std::unique_ptr<char, int (*)(void*)> name(::cap_to_name(c), ::cap_free);
    names.emplace_back(name.get());
    std::ranges::transform(names.back(), names.back().begin(), [](unsigned char l) { return std::toupper(l); });
  }
  return names;
}

}  // namespace sandbar::os
