#include "guest/gunzip.h"

#include <zlib.h>

#include <array>

namespace sandbar::guest {

struct Gunzip::State {
  z_stream z{};
  bool ended = false;    // at the end of a member
  bool trailer = false;  // past the last member: what follows is padding
  std::array<char, 64 << 10> out{};
};

Gunzip::Gunzip() : state_(std::make_unique<State>()) {
  constexpr int kGzipOnly = 15 + 16;
  SB_CHECK(::inflateInit2(&state_->z, kGzipOnly) == Z_OK);
}

Gunzip::~Gunzip() {
  ::inflateEnd(&state_->z);
}

Result<> Gunzip::Feed(std::string_view bytes, const std::function<Result<>(std::string_view)>& sink) {
  State& s = *state_;
  z_stream& z = s.z;
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  while (z.avail_in > 0 && !s.trailer) {
    if (s.ended) {
      // Tape writers pad with zeros; anything else has to be another member.
      if (*z.next_in == 0) {
        s.trailer = true;
        break;
      }
      ::inflateReset(&z);
      s.ended = false;
    }
    int r = Z_OK;
    do {
      z.next_out = reinterpret_cast<Bytef*>(s.out.data());
      z.avail_out = static_cast<uInt>(s.out.size());
      r = ::inflate(&z, Z_NO_FLUSH);
      if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR) return Fail(Code::kBadRequest, "archive: bad gzip data");
      size_t n = s.out.size() - z.avail_out;
      if (n > 0) SB_TRYV(sink(std::string_view(s.out.data(), n)));
    } while (r == Z_OK && (z.avail_in > 0 || z.avail_out == 0));
    s.ended = r == Z_STREAM_END;
    if (r == Z_BUF_ERROR) break;
  }
  return {};
}

Result<> Gunzip::Finish() {
  if (!state_->ended) return Fail(Code::kBadRequest, "archive: truncated gzip data");
  return {};
}

}  // namespace sandbar::guest
