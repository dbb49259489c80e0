// What differs between two stacks of layers, as a machine on them would see it. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::layer_scanner {

struct Change {
  std::string path;     // as it is, from "/"
  char kind = 'M';      // A added, D deleted, M changed
  char type = 'f';      // of what is there now (of what was, when it was deleted): d f l p s x
  uint64_t size = 0;    // of what is there now
  uint64_t before = 0;  // of what was
};

// Stacks are topmost first. A deleted directory is one change; an added one is one for each entry in it. Parts that
// both stacks share are not read.
Result<> Diff(const std::vector<Fd>& before, const std::vector<Fd>& after,
              const std::function<Result<>(const Change&)>& sink);

}  // namespace sandbar::layer_scanner
