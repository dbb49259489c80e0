// Durations as people write them in options, settings and files. Pure function, any thread.
//
//   ParseDuration("5m")         // 300'000
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sandbar {

// "90", "90s", "5m", "2h", "30d", "1500ms" in milliseconds; a plain number means seconds. Nothing when it is no
// duration, when it is zero, and when its number is above `largest_number`, whatever the unit.
std::optional<int64_t> ParseDuration(std::string_view text, int64_t largest_number = 100'000'000);

}  // namespace sandbar
