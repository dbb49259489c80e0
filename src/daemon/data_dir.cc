#include "daemon/data_dir.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/files.h"
#include "base/ids.h"
#include "cli/output.h"
#include "cli/server_endpoint.h"

namespace sandbar::daemon {
namespace {

// Makes or adopts one directory. The parent is root's, so nobody can swap it between the calls.
Result<> Directory(const std::string& path, uid_t uid, gid_t gid, mode_t mode) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno("make " + path);
  Fd dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir) return FailErrno("open " + path);
  if (::fchown(dir.get(), uid, gid) != 0) return FailErrno("chown " + path);
  if (::fchmod(dir.get(), mode) != 0) return FailErrno("chmod " + path);
  return {};
}

Result<> WriteNew(const std::string& path, const std::string& text, mode_t mode) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file) return FailErrno("make " + path);
  SB_TRYV(cli::WriteAll(file.get(), text));
  if (::fsync(file.get()) != 0) return FailErrno("sync " + path);
  return {};
}

flock64 WholeFile(short type) {
  flock64 lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

Result<Identity> LookUpUser(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  std::string buffer(16 << 10, '\0');
  int err = ::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr)
    return cli::FailWithFix(
        Code::kNotFound, "the system user '" + name + "' does not exist" + (err != 0 ? ": " + std::to_string(err) : ""),
        "useradd --system --user-group --no-create-home --shell /usr/sbin/nologin " + name);
  if (entry.pw_uid == 0) return Fail(Code::kBadRequest, "the daemon must not run as root; `user` names '" + name + "'");
  return Identity{entry.pw_uid, entry.pw_gid};
}

Result<> PrepareDataDir(const std::string& data, Identity daemon) {
  std::error_code ec;
  // Directories above it that are made for it are no secret: the daemon has to get through them.
  const mode_t mask = ::umask(0022);
  std::filesystem::create_directories(std::filesystem::path(data).parent_path(), ec);
  ::umask(mask);
  if (ec) return Fail(Code::kIo, "make " + data + ": " + ec.message());
  SB_TRYV(Directory(data, 0, daemon.gid, 01770));
  SB_TRYV(Directory(data + "/run", 0, daemon.gid, 0750));
  SB_TRYV(Directory(data + "/log", 0, daemon.gid, 0750));
  SB_TRYV(Directory(data + "/logs", daemon.uid, daemon.gid, 0700));
  struct stat st{};
  std::string id = data + "/instance-id";
  if (::lstat(id.c_str(), &st) != 0) SB_TRYV(WriteNew(id, NewLabel("", 16) + "\n", 0644));
  return {};
}

// POSIX record locks, not flock: the kernel then tells who holds it, so `down` never has to trust a file's pid.
Result<Fd> LockDataDir(const std::string& data) {
  std::string path = data + "/lock";
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return FailErrno("open " + path);
  auto lock = WholeFile(F_WRLCK);
  if (::fcntl(file.get(), F_SETLK64, &lock) == 0) return file;
  if (errno != EACCES && errno != EAGAIN) return FailErrno("lock " + path);
  auto holder = WholeFile(F_WRLCK);
  static_cast<void>(::fcntl(file.get(), F_GETLK64, &holder));
  return cli::FailWithFix(Code::kConflict, "another server (pid " + std::to_string(holder.l_pid) + ") uses " + data,
                          "sandbar down --data " + data + "   or give this one its own --data");
}

Result<pid_t> LockHolder(const std::string& data) {
  std::string path = data + "/lock";
  Fd file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno == ENOENT) return 0;
  if (!file) return FailErrno("open " + path);
  auto lock = WholeFile(F_WRLCK);
  if (::fcntl(file.get(), F_GETLK64, &lock) != 0) return FailErrno("look at " + path);
  return lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}

Result<std::string> ReadOrMakeSecret(const std::string& path, const std::string& prefix) {
  return ReadOrMake(path, [&prefix] { return NewId(prefix, 48); });
}

Result<std::string> ReadOrMake(const std::string& path, const std::function<std::string()>& make) {
  struct stat st{};
  if (::lstat(path.c_str(), &st) == 0) {
    SB_TRY(std::string text, ReadFile(path));
    while (text.ends_with('\n')) text.pop_back();
    if (text.size() < 32) return Fail(Code::kIo, path + " is damaged: too short for a secret");
    return text;
  }
  std::string secret = make();
  // Written aside and renamed: a crash never leaves half a secret.
  std::string aside = path + ".new";
  ::unlink(aside.c_str());
  SB_TRYV(WriteNew(aside, secret + "\n", 0600));
  if (::rename(aside.c_str(), path.c_str()) != 0) return FailErrno("rename " + aside);
  return secret;
}

}  // namespace sandbar::daemon
