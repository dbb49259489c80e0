#include "base/duration.h"

#include <charconv>

namespace sandbar {

std::optional<int64_t> ParseDuration(std::string_view text, int64_t largest_number) {
  int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || value <= 0 || value > largest_number) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit == "ms") return value;
  if (unit.empty() || unit == "s") return value * 1000;
  if (unit == "m") return value * 60'000;
  if (unit == "h") return value * 3'600'000;
  if (unit == "d") return value * 86'400'000;
  return std::nullopt;
}

}  // namespace sandbar
