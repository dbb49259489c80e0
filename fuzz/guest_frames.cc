// Both directions of the agent's protocol. What decodes must encode to something that decodes to the same again.
#include "wire/guest_frames.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

template <class Frame>
void Try(std::string_view bytes, bool synced, bool stream, size_t step) {
  using namespace sandbar;
  wire::FrameDecoder<Frame> decoder(synced);
  if (stream) decoder.SetStream();
  Frame frame;
  for (size_t at = 0; at < bytes.size(); at += step) {
    decoder.Feed(bytes.substr(at, step));
    for (;;) {
      auto got = decoder.Next(frame);
      if (!got) return;
      if (!*got) break;
      std::string once = wire::Encode(frame);
      wire::FrameDecoder<Frame> again(!once.starts_with(wire::kGuestMagic));
      again.Feed(once);
      Frame copy;
      auto back = again.Next(copy);
      if (!back || !*back || wire::Encode(copy) != once) std::abort();
      // As part of a stream: nothing but a magic in front looks like one.
      if (wire::EncodeForStream(frame).find(wire::kStreamMagic.substr(0, 2), 1) != std::string::npos) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  bool synced = (data[0] & 1) != 0;
  bool stream = (data[0] & 2) != 0;
  size_t step = 1 + (data[0] >> 2);
  Try<sandbar::wire::HostFrame>(bytes, synced, stream, step);
  Try<sandbar::wire::GuestFrame>(bytes, synced, stream, step);
  return 0;
}
