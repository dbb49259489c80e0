#include "cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <optional>

#include "base/ids.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;

// The descriptor of ours that `path` is a name of: /dev/stdout, /dev/stderr, /dev/fd/N, /proc/self/fd/N.
std::optional<int> DescriptorOf(const std::string& path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (std::string_view prefix : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(prefix)) continue;
    int number = -1;
    const char* const last = path.data() + path.size();
    auto [end, ec] = std::from_chars(path.data() + prefix.size(), last, number);
    if (ec == std::errc() && end == last) return number;
  }
  return std::nullopt;
}

// The device, pipe or socket that `path` names; nothing when it names none. Opening can lead elsewhere than the look
// before it did, when somebody else may write to the directory: then it is an error.
Result<std::optional<Fd>> OpenSpecial(const std::string& path) {
  struct stat before{}, after{};
  if (::stat(path.c_str(), &before) != 0 || S_ISREG(before.st_mode)) return std::nullopt;
  Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (!file) return FailErrno(path);
  if (::fstat(file.get(), &after) != 0) return FailErrno(path);
  if (before.st_dev != after.st_dev || before.st_ino != after.st_ino)
    return Fail(Code::kConflict, path + " was replaced while it was opened");
  return file;
}

}  // namespace

Result<OutputFile> OutputFile::Open(std::string path) {
  std::error_code ec;
  if (path.empty()) return Fail(Code::kBadRequest, "the file to write has no name");
  if (fs::is_directory(path, ec)) return Fail(Code::kBadRequest, path + " is a directory: name a file in it");
  // A duplicate, not the name opened again: that would begin at the start of a file that the shell appends to.
  if (const auto descriptor = DescriptorOf(path)) {
    Fd file(::fcntl(*descriptor, F_DUPFD_CLOEXEC, 0));
    if (!file) return FailErrno(path);
    return OutputFile(std::move(path), "", std::move(file));
  }
  SB_TRY(auto special, OpenSpecial(path));
  if (special) return OutputFile(std::move(path), "", *std::move(special));
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
