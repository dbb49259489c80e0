// sudo for scripts, on a kernel without setuid files (elevated.h). Any process of the machine can ask the agent at a
// socket to run sudo. The kernel, not the request, says which user asks.
//
// Loop thread; owned by Agent. A request is served by a forked process, so that the agent waits for nobody: it reads
// the request within a time limit, runs sudo in a session of its own on the caller's descriptors and directory, passes
// signals on, ends it when the caller is gone, and tells how it ended. Each conversation:
//
//   agent: one byte                                       from here on, messages carry who sent them
//   caller: ElevateHeader with four descriptors, strings  standard input, output, error, working directory; argv, env
//   caller: one byte per signal
//   agent: int32_t, as waitpid tells it
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "guest/launch.h"
#include "guest/loop.h"

namespace sandbar::guest {

inline constexpr size_t kMaxElevations = 64;           // at a time
inline constexpr uint32_t kMaxElevateBytes = 2 << 20;  // of strings: what exec takes
inline constexpr uint32_t kMaxElevateStrings = 1 << 17;
inline constexpr unsigned kElevateSeconds = 20;  // for the whole request
inline constexpr size_t kElevateFds = 4;
inline constexpr std::array kElevateSignals = {SIGHUP, SIGINT, SIGQUIT, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

struct ElevateHeader {
  uint32_t argc = 0, envc = 0;
  uint32_t size = 0;  // of the strings, each with its NUL
  uint32_t mask = 0;  // umask
  std::array<rlimit, RLIM_NLIMITS> limits{};
};

// False: not exactly that many strings.
bool SplitStrings(std::string_view bytes, uint32_t argc, uint32_t envc, std::vector<std::string>& argv,
                  std::vector<std::string>& env);

// A process by its /proc/PID/status.
struct ProcessStatus {
  uint32_t uid = 0, gid = 0;
  std::vector<uint32_t> groups;
  uint32_t seccomp = 0;
};
// Nothing for what has several users or groups at once: sudo is not for them.
std::optional<ProcessStatus> ParseStatus(std::string_view text);

class Elevations {
 public:
  Elevations(Loop* loop, const ChildSetup* setup) : loop_(loop), setup_(setup) {}

  // Before any guest code runs: nobody else may be first at that path.
  Result<> Listen(const std::string& path);
  bool OnReaped(pid_t pid) { return running_.erase(pid) != 0; }

 private:
  void OnAccept();

  Loop* loop_;
  const ChildSetup* setup_;
  Fd listener_;
  Watch watch_;
  Timer again_;
  std::set<pid_t> running_;
};

}  // namespace sandbar::guest
