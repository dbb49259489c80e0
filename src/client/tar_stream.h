// A gzip'd tar of local files, produced piece by piece: what `sandbar cp` uploads. Regular files, directories and
// symbolic links, names relative, pax records for names that do not fit or are not ASCII. Blocking reads; one user, one
// thread.
//
//   TarStream tar({{"a/b.txt", "/tmp/b.txt"}});
//   while (!(piece = *tar.Next()).empty()) send(piece);
#pragma once

#include <zlib.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::client {

struct TarItem {
  std::string name;                                   // in the archive, relative
  std::string path;                                   // here
  std::optional<std::string> content = std::nullopt;  // instead of a file
  unsigned mode = 0644;                               // of `content`
  enum class Kind { kFile, kDirectory, kLink } kind = Kind::kFile;
  bool keep_time = false;  // else the receiver dates it
};

class TarStream {
 public:
  explicit TarStream(std::vector<TarItem> items);
  ~TarStream();
  TarStream(const TarStream&) = delete;
  TarStream& operator=(const TarStream&) = delete;

  // Compressed bytes; empty at the end. A file that changes its size while being read is an error.
  Result<std::string> Next();

 private:
  Result<> Refill();
  Result<> Open(const TarItem& item);
  Result<> OpenFile(const TarItem& item);
  std::string Deflate(std::string_view bytes, bool finish);

  std::vector<TarItem> items_;
  size_t next_ = 0;
  Fd file_;
  uint64_t left_ = 0;     // bytes of the open file still to come
  std::string plain_;     // tar bytes waiting for compression
  bool trailer_ = false;  // the end blocks were written
  bool done_ = false;
  z_stream zip_{};
};

// The 512-byte header (preceded by a pax one where needed) of a regular file. Exposed for the test.
std::string TarHeader(const std::string& name, uint64_t size, unsigned mode);

}  // namespace sandbar::client
