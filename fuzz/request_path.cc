// Paths of guests' requests: one form, which stays the same, and readings that hide no dot segment.
#include "wire/request_path.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using namespace sandbar::wire;

namespace {

bool HasDots(std::string_view path) {
  while (!path.empty()) {
    if (path.front() != '/') std::abort();
    path.remove_prefix(1);
    std::string_view segment = path.substr(0, path.find('/'));
    path.remove_prefix(segment.size());
    if (segment == "." || segment == "..") return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string path = "/" + std::string(reinterpret_cast<const char*>(data), size);
  auto normalised = NormalizePath(path);
  if (!normalised) return 0;
  auto again = NormalizePath(*normalised);
  if (!again || *again != *normalised || HasDots(*normalised)) std::abort();
  auto readings = ReadPath(*normalised);
  if (!readings) return 0;
  if (readings->empty() || readings->size() > 16) std::abort();
  for (const std::string& reading : *readings)
    if (HasDots(reading)) std::abort();
  return 0;
}
