// Both directions of the agent's protocol. What decodes must encode to something that decodes to the same again.
#include "protocol/guest_frames.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

template <class Frame>
void Try(std::string_view bytes, bool synced, bool stream, size_t step) {
  using namespace sandbar;
  protocol::FrameDecoder<Frame> decoder(synced);
  if (stream) decoder.SetStream();
  Frame frame;
  for (size_t at = 0; at < bytes.size(); at += step) {
    decoder.Feed(bytes.substr(at, step));
    for (;;) {
      auto got = decoder.Next(frame);
      if (!got) return;
      if (!*got) break;
      std::string once = protocol::Encode(frame);
      protocol::FrameDecoder<Frame> again(!once.starts_with(protocol::kGuestMagic.substr(0, 2)));
      again.Feed(once);
      Frame copy;
      auto back = again.Next(copy);
      if (!back || !*back || protocol::Encode(copy) != once) std::abort();
      // As part of a stream: nothing but a magic in front looks like one.
      std::string bytes_of = protocol::EncodeForStream(frame);
      if (bytes_of.starts_with(protocol::kVersionsMagic)) bytes_of.erase(0, protocol::kVersionsMagic.size() + 1);
      if (bytes_of.find(protocol::kStreamMagic.substr(0, 2), 1) != std::string::npos) std::abort();
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
  Try<sandbar::protocol::HostFrame>(bytes, synced, stream, step);
  Try<sandbar::protocol::GuestFrame>(bytes, synced, stream, step);
  return 0;
}
