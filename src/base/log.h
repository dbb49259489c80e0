// Structured-enough logging: one line per event, "key=value" where it helps. Never log secrets or guest bytes raw.
// Thread-safe. Children between clone and exec must not use it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sandbar::log {

enum class Level { kDebug, kInfo, kWarn, kError };

void SetLevel(Level level);
// Lines go to stderr by default; a file path sends them there (append).
void SetFile(const std::string& path);
void Write(Level level, std::string_view line);

template <class... A>
void Debug(fmt::format_string<A...> f, A&&... a) {
  Write(Level::kDebug, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void Info(fmt::format_string<A...> f, A&&... a) {
  Write(Level::kInfo, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void Warn(fmt::format_string<A...> f, A&&... a) {
  Write(Level::kWarn, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void Error(fmt::format_string<A...> f, A&&... a) {
  Write(Level::kError, fmt::format(f, std::forward<A>(a)...));
}

}  // namespace sandbar::log
