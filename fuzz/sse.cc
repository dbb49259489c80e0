// Server-sent events: the same events however the bytes are cut, and never a line end in an event's name.
#include "wire/sse.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

using namespace sandbar::wire;

namespace {

std::string Parse(std::string_view in, size_t step) {
  SseParser parser;
  std::string all;
  while (!in.empty()) {
    auto events = parser.Feed(in.substr(0, step));
    if (!events) std::abort();  // inputs are far below the limit
    for (const SseEvent& e : *events) {
      if (e.name.find_first_of("\r\n") != std::string::npos) std::abort();
      all += std::to_string(e.name.size()) + e.name + std::to_string(e.data.size()) + e.data;
    }
    in.remove_prefix(std::min(step, in.size()));
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view in(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (Parse(in, in.size() + 1) != Parse(in, 1 + data[0] % 8)) std::abort();
  return 0;
}
