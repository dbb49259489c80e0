#include "cli/zstd_file.h"

#include <unistd.h>

#include "cli/output.h"

namespace sandbar::cli {
namespace {

constexpr size_t kPiece = 128 << 10;
constexpr int kMaxWindowLog = 27;  // what a reader has to be ready for: 128 MiB

std::unexpected<Error> Broken(size_t code) {
  return Fail(Code::kBadRequest, std::string("not a zstd file: ") + ::ZSTD_getErrorName(code));
}

}  // namespace

Result<> ZstdWriter::Push(std::string_view bytes, ZSTD_EndDirective how) {
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  std::string space(kPiece, '\0');
  for (;;) {
    ZSTD_outBuffer out{space.data(), space.size(), 0};
    size_t left = ::ZSTD_compressStream2(zip_.get(), &out, &in, how);
    if (::ZSTD_isError(left) != 0) return Fail(Code::kInternal, ::ZSTD_getErrorName(left));
    SB_TRYV(WriteAll(file_.get(), std::string_view(space).substr(0, out.pos)));
    if (how == ZSTD_e_end ? left == 0 : in.pos == in.size) return {};
  }
}

Result<> ZstdWriter::Finish() {
  SB_TRYV(Push("", ZSTD_e_end));
  if (::fsync(file_.get()) != 0 && errno != EINVAL) return FailErrno("sync");
  return {};
}

Result<std::string> ZstdReader::Read() {
  ::ZSTD_DCtx_setParameter(zip_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  std::string space(kPiece, '\0');
  for (;;) {
    if (at_ == in_.size()) {
      in_.resize(kPiece);
      ssize_t n = ::read(file_.get(), in_.data(), in_.size());
      if (n < 0) return FailErrno("read");
      in_.resize(static_cast<size_t>(n));
      at_ = 0;
      if (n == 0 && frame_open_) return Fail(Code::kBadRequest, "the file is cut short");
      if (n == 0) return std::string();
    }
    ZSTD_inBuffer in{in_.data(), in_.size(), at_};
    ZSTD_outBuffer out{space.data(), space.size(), 0};
    size_t left = ::ZSTD_decompressStream(zip_.get(), &out, &in);
    if (::ZSTD_isError(left) != 0) return Broken(left);
    at_ = in.pos;
    frame_open_ = left != 0;
    if (out.pos == 0) continue;
    space.resize(out.pos);
    return space;
  }
}

}  // namespace sandbar::cli
