// Parsed once for net/ and the folders above it (sb_precompiled in sandbar.cmake). Nothing relies on it: every file still
// includes what it uses.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "async/task.h"
