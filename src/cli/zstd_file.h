// A zstd file, written or read piece by piece. Blocking; one user, one thread.
#pragma once

#include <zstd.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::cli {

class ZstdWriter {
 public:
  explicit ZstdWriter(Fd file) : file_(std::move(file)), zip_(::ZSTD_createCCtx()) {}
  Result<> Write(std::string_view bytes) { return Push(bytes, ZSTD_e_continue); }
  // The file is complete and on disk.
  Result<> Finish();

 private:
  struct Release {
    void operator()(ZSTD_CCtx* zip) const { ::ZSTD_freeCCtx(zip); }
  };
  Result<> Push(std::string_view bytes, ZSTD_EndDirective how);
  Fd file_;
  std::unique_ptr<ZSTD_CCtx, Release> zip_;
};

class ZstdReader {
 public:
  explicit ZstdReader(Fd file) : file_(std::move(file)), zip_(::ZSTD_createDCtx()) {}
  // Empty at the end; a file that is cut short is an error.
  Result<std::string> Read();

 private:
  struct Release {
    void operator()(ZSTD_DCtx* zip) const { ::ZSTD_freeDCtx(zip); }
  };
  Fd file_;
  std::unique_ptr<ZSTD_DCtx, Release> zip_;
  std::string in_;
  size_t at_ = 0;
  bool frame_open_ = false;
};

}  // namespace sandbar::cli
