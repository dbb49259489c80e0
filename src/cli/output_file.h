// A file that a command writes for its user. A regular file gets its name when it is complete: the bytes go into a
// temporary file beside it, so an interrupted command leaves the old file as it was. A device, a pipe or a name of an
// open descriptor (/dev/null, /dev/stdout, /proc/self/fd/1) is never replaced: the bytes go straight into it.
// Blocking; one owner, one thread.
//
//   SB_TRY(OutputFile out, OutputFile::Open("box.tar.zst"));
//   SB_TRYV(WriteAll(out.fd(), bytes));
//   SB_TRYV(out.Commit());       // without it, the destructor deletes the temporary file
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::cli {

class OutputFile {
 public:
  // Fails for a directory, and where no file can be made. The file is readable by its owner alone until Commit.
  static Result<OutputFile> Open(std::string path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  int fd() const { return file_.get(); }
  // A second descriptor of the same file, for a writer that owns its own.
  Result<Fd> Duplicate() const;
  // The mode and time that a regular file gets; mode 0600 and the time of writing without it.
  struct About {
    mode_t mode = 0600;
    int64_t mtime = 0;
  };
  Result<> Commit(std::optional<About> about = std::nullopt);

 private:
  OutputFile(std::string path, std::string part, Fd file)
      : path_(std::move(path)), part_(std::move(part)), file_(std::move(file)) {}

  std::string path_;
  std::string part_;  // empty: the bytes go straight into `path_`, or the file has its name
  Fd file_;
};

}  // namespace sandbar::cli
