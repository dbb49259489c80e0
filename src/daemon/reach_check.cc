#include "daemon/reach_check.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "cli/output.h"

namespace sandbar::daemon {
namespace {

constexpr int kNoChange = 255;

// The first of these directories that a process of this user may not use, by its place; -1: none. The kernel is asked
// by a child that has become that user: only it knows access lists and the rules of the file system.
Result<int> FirstClosed(const std::vector<std::string>& paths, Identity daemon, bool read_last) {
  const pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(daemon.gid, daemon.gid, daemon.gid) != 0 ||
        ::setresuid(daemon.uid, daemon.uid, daemon.uid) != 0)
      ::_exit(kNoChange);
    for (size_t i = 0; i < paths.size() && i + 1 < kNoChange; ++i) {
      const int want = read_last && i + 1 == paths.size() ? R_OK | X_OK : X_OK;
      if (::access(paths[i].c_str(), want) != 0 && errno == EACCES) ::_exit(static_cast<int>(i) + 1);
    }
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) == kNoChange)
    return Fail(Code::kForbidden, "cannot become the server's user to look what it can reach");
  return WEXITSTATUS(status) - 1;
}

}  // namespace

Result<> CheckReachable(const std::string& user, Identity daemon, const std::string& what, const std::string& path,
                        bool itself, const std::string& fix) {
  std::vector<std::string> paths = {"/"};
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    paths.push_back(path.substr(0, slash));
  if (itself) paths.push_back(path);
  SB_TRY(int closed, FirstClosed(paths, daemon, itself));
  if (closed < 0) return {};
  const std::string& dir = paths[static_cast<size_t>(closed)];
  const bool last = dir == path;
  return cli::FailWithFix(
      Code::kForbidden,
      "the server's user '" + user + "' cannot " + (last ? "read " : "enter ") + dir + ", and it has to reach " + what,
      fix + "; or open that one: chmod o+" + (last ? "rx " : "x ") + cli::ShellWord(dir));
}

}  // namespace sandbar::daemon
