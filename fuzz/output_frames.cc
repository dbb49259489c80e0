// The frames of a command's output: the same frames however the bytes are cut, and what was decoded encodes to the same
// bytes again.
#include "wire/output_frames.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

using namespace sandbar::wire;

namespace {

std::string Decode(std::string_view in, size_t step) {
  OutputFrames frames;
  std::string all;
  while (!in.empty()) {
    auto fed = frames.Feed(in.substr(0, step));
    while (auto frame = frames.Next()) {
      if (frame->payload.size() > kMaxOutputPayload) std::abort();
      all += OutputFrame(frame->kind, frame->payload);
    }
    if (!fed) return all + "broken";
    in.remove_prefix(std::min(step, in.size()));
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view in(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = Decode(in, in.size() + 1);
  if (whole != Decode(in, 1 + data[0] % 8)) std::abort();
  if (!whole.ends_with("broken") && !in.starts_with(whole)) std::abort();
  return 0;
}
