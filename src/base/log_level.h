// The names of log levels, as the configuration, the environment (SANDBAR_LOG) and command lines write them.
#pragma once

#include <optional>
#include <string_view>

#include "base/log.h"

namespace sandbar::log {

// "debug", "info", "warn" or "error"; nothing for other words.
std::optional<Level> ParseLevel(std::string_view name);

}  // namespace sandbar::log
