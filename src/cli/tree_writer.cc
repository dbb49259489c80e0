#include "cli/tree_writer.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/ids.h"
#include "cli/output.h"

namespace sandbar::cli {
namespace {

// Inside of `dir`, through no link.
Fd OpenInside(int dir, const std::string& path, uint64_t flags) {
  open_how how{};
  how.flags = flags | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const char* name = path.empty() ? "." : path.c_str();
  return Fd(static_cast<int>(::syscall(SYS_openat2, dir, name, &how, sizeof how)));
}

// An archive names directories before what is in them; one that does not gets them all the same.
Fd OpenOrMake(int root, const std::string& path) {
  Fd dir = OpenInside(root, path, O_RDONLY | O_DIRECTORY);
  if (dir || errno != ENOENT || path.empty()) return dir;
  const size_t slash = path.rfind('/');
  Fd above = OpenOrMake(root, slash == std::string::npos ? "" : path.substr(0, slash));
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (!above || (::mkdirat(above.get(), name.c_str(), 0755) != 0 && errno != EEXIST)) return Fd();
  return OpenInside(root, path, O_RDONLY | O_DIRECTORY);
}

// Whether every further entry would fail in the same way.
bool Fatal(int error) {
  return error == ENOSPC || error == EDQUOT || error == EROFS || error == EIO || error == EMFILE || error == ENOMEM;
}

}  // namespace

TreeWriter::~TreeWriter() {
  if (!scratch_.empty()) ::unlinkat(parent_.get(), scratch_.c_str(), 0);
}

Result<> TreeWriter::LeaveOut(const Error& why) {
  if (Fatal(why.sys_errno)) return std::unexpected(why);
  ++left_out_count_;
  if (left_out_.size() < kMaxNamed) left_out_.push_back(entry_.name + ": " + why.message);
  return {};
}

Result<> TreeWriter::EnterParent() {
  const size_t slash = entry_.name.rfind('/');
  const std::string path = slash == std::string::npos ? "" : entry_.name.substr(0, slash);
  base_ = slash == std::string::npos ? entry_.name : entry_.name.substr(slash + 1);
  if (parent_ && path == parent_path_) return {};
  parent_ = OpenOrMake(root_.get(), path);
  parent_path_ = path;
  if (parent_) return {};
  if (errno == ELOOP || errno == ENOTDIR) return FailErrno("a link or a file is in the way here");
  return FailErrno("cannot enter its directory");
}

Result<> TreeWriter::MakeDirectory() {
  if (::mkdirat(parent_.get(), base_.c_str(), 0700) == 0) {
    made_.push_back(entry_);
    return {};
  }
  const int error = errno;
  if (error == EEXIST && OpenInside(parent_.get(), base_, O_PATH | O_DIRECTORY)) return {};
  return FailErrno("cannot make this directory here", error);
}

Result<> TreeWriter::Rename() {
  const std::string from = std::exchange(scratch_, "");
  if (::renameat(parent_.get(), from.c_str(), parent_.get(), base_.c_str()) == 0) {
    ++files_;
    return {};
  }
  const int error = errno;
  ::unlinkat(parent_.get(), from.c_str(), 0);
  return FailErrno("cannot take this name here", error);
}

Result<> TreeWriter::MakeLink() {
  const std::string name = NewLabel(".sandbar-cp-", 12);
  if (::symlinkat(entry_.target.c_str(), parent_.get(), name.c_str()) != 0) return FailErrno("cannot make a link");
  scratch_ = name;
  const timespec times[2] = {{0, UTIME_OMIT}, {entry_.mtime, 0}};
  ::utimensat(parent_.get(), name.c_str(), times, AT_SYMLINK_NOFOLLOW);
  return Rename();
}

Result<> TreeWriter::BeginFile() {
  const std::string name = NewLabel(".sandbar-cp-", 12);
  file_ = Fd(::openat(parent_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_) return FailErrno("cannot make a file");
  scratch_ = name;
  return {};
}

Result<> TreeWriter::OnEntry(const wire::TarEntry& entry) {
  entry_ = entry;
  if (++entries_ > kMaxEntries) return Fail(Code::kTooLarge, "the directory holds too many files to be copied");
  if (entry.kind == wire::TarEntry::Kind::kOther)
    return LeaveOut(Fail(Code::kUnsupported, "neither a file nor a directory nor a link").error());
  if (entry.name.empty()) return {};
  auto made = EnterParent();
  if (!made) parent_.Reset();
  if (made && entry.directory) made = MakeDirectory();
  if (made && entry.kind == wire::TarEntry::Kind::kSymlink) made = MakeLink();
  if (made && !entry.directory && entry.kind == wire::TarEntry::Kind::kPlain) made = BeginFile();
  return made ? Result<>{} : LeaveOut(made.error());
}

Result<> TreeWriter::OnData(std::string_view bytes) {
  if (!file_) return {};  // of an entry that was left out
  bytes_ += bytes.size();
  return WriteAll(file_.get(), bytes);
}

Result<> TreeWriter::OnEntryEnd() {
  if (!file_) return {};
  const timespec times[2] = {{0, UTIME_OMIT}, {entry_.mtime, 0}};
  Result<> done;
  if (::fchmod(file_.get(), entry_.mode & 0777) != 0) done = FailErrno("cannot set its mode");
  ::futimens(file_.get(), times);
  const int fd = file_.Release();
  if (::close(fd) != 0 && errno != EINTR) done = FailErrno("cannot write it");
  if (done) done = Rename();
  return done ? Result<>{} : LeaveOut(done.error());
}

Result<> TreeWriter::Finish() {
  for (auto it = made_.rbegin(); it != made_.rend(); ++it) {
    entry_ = *it;
    Fd dir = OpenInside(root_.get(), it->name, O_RDONLY | O_DIRECTORY);
    const timespec times[2] = {{0, UTIME_OMIT}, {it->mtime, 0}};
    if (dir) ::futimens(dir.get(), times);
    if (dir && ::fchmod(dir.get(), it->mode & 0777) == 0) continue;
    SB_TRYV(LeaveOut(FailErrno("cannot set its mode").error()));
  }
  made_.clear();
  return {};
}

}  // namespace sandbar::cli
