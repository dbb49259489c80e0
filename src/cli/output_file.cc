#include "cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/ids.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;

// Whether `path` names a device, a pipe or a socket, or is a name of an open descriptor, whatever that leads to.
bool WriteDirectly(const std::string& path) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) return false;
  if (!S_ISREG(st.st_mode)) return true;
  std::error_code ec;
  const fs::path whole(path);
  const fs::path parent = fs::canonical(whole.has_parent_path() ? whole.parent_path() : ".", ec);
  if (ec) return false;
  const bool link = fs::is_symlink(whole, ec);
  return parent.string().starts_with("/proc/") || (link && parent == "/dev");
}

}  // namespace

Result<OutputFile> OutputFile::Open(std::string path) {
  std::error_code ec;
  if (path.empty()) return Fail(Code::kBadRequest, "the file to write has no name");
  if (fs::is_directory(path, ec)) return Fail(Code::kBadRequest, path + " is a directory: name a file in it");
  if (WriteDirectly(path)) {
    Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file) return FailErrno(path);
    return OutputFile(std::move(path), "", std::move(file));
  }
  std::string part = path + "." + NewLabel("part-", 8);
  Fd file(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return FailErrno(path);
  return OutputFile(std::move(path), std::move(part), std::move(file));
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), part_(std::exchange(other.part_, "")), file_(std::move(other.file_)) {}

OutputFile::~OutputFile() {
  if (!part_.empty()) ::unlink(part_.c_str());
}

Result<Fd> OutputFile::Duplicate() const {
  Fd copy(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return FailErrno("a second descriptor of " + path_);
  return copy;
}

Result<> OutputFile::Commit(std::optional<About> about) {
  if (part_.empty()) return {};
  if (about) {
    const timespec times[2] = {{0, UTIME_OMIT}, {about->mtime, 0}};
    if (::fchmod(file_.get(), about->mode & 0777) != 0) return FailErrno("set the mode of " + path_);
    ::futimens(file_.get(), times);
  }
  if (::rename(part_.c_str(), path_.c_str()) != 0) return FailErrno(path_);
  part_.clear();
  return {};
}

}  // namespace sandbar::cli
