// Bytes for tests that do not compress and are the same on every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sandbar {

inline std::string Noise(size_t n) {
  std::string out(n, '\0');
  uint64_t x = 88172645463325252ULL;
  for (auto& c : out) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    c = static_cast<char>(x);
  }
  return out;
}

}  // namespace sandbar
