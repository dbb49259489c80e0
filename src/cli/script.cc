#include "cli/script.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "cli/server_process.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;

std::string FindScript(const std::string& name) {
  for (const char* relative : {"../../../", "../share/sandbar/"}) {
    std::error_code ec;
    auto path = fs::canonical(fs::path(ProgramDirectory()) / relative / name, ec);
    if (!ec) return path.string();
  }
  return {};
}

}  // namespace

Result<> RunScript(const std::string& name, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {FindScript(name)};
  if (words.front().empty()) return Fail(Code::kNotFound, name + " is not beside this program");
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) {
    // Progress is chatter, so it goes to stderr.
    ::dup2(2, 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Fail(Code::kIo, name + " failed (see above)");
}

}  // namespace sandbar::cli
