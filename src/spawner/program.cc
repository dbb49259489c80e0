#include "spawner/program.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "base/log.h"
#include "spawner/host_resources.h"
#include "spawner/options.h"
#include "spawner/server/server.h"

namespace sandbar::spawner {
namespace {

constexpr int kExitSetup = 2;

int Complain(const Error& error) {
  std::fprintf(stderr, "sandbar-spawner: %s\n", error.message.c_str());
  return kExitSetup;
}

void DetachStdio() {
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3 && null >= 0; ++fd) ::dup2(null, fd);
  if (null > 2) ::close(null);
}

int Serve(Options options, int ready) {
  bool foreground = options.foreground;
  auto host = PrepareHost(std::move(options));
  if (!host && host.error().code == Code::kConflict) {
    std::fprintf(stderr, "sandbar-spawner: %s\n", host.error().message.c_str());
    return 0;
  }
  if (!host) return Complain(host.error());
  Server server(host->get());
  if (auto r = server.Start(); !r) return Complain(r.error());
  log::Info("serving, instance {}, disk {}, control groups {}", (*host)->instance, (*host)->disk->Describe(),
            (*host)->cgroups->Describe());
  if (!foreground) DetachStdio();
  if (ready >= 0) {
    [[maybe_unused]] ssize_t n = ::write(ready, "R", 1);
    ::close(ready);
  }
  // Every machine starts as a copy of this process: what the start-up has read and dropped would be copied with it.
  ::malloc_trim(0);
  auto ended = server.Run();
  if (!ended) {
    log::Error("{}", ended.error().message);
    return 1;
  }
  log::Info("ended");
  return 0;
}

// Waits until the detached child is ready, or has given up and said why on our stderr.
int AwaitReady(pid_t child, int ready) {
  char c = 0;
  ssize_t n = 0;
  do {
    n = ::read(ready, &c, 1);
  } while (n < 0 && errno == EINTR);
  if (n == 1) return 0;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitSetup;
}

}  // namespace

int RunSpawner(const std::vector<std::string>& args) {
  auto options = ParseOptions(args);
  if (!options) {
    std::fprintf(stderr, "sandbar-spawner: %s\n%s", options.error().message.c_str(), Usage().c_str());
    return kExitSetup;
  }
  log::SetLevel(options->log);
  ::umask(022);
  if (::chdir("/") != 0) return kExitSetup;
  if (options->foreground) return Serve(std::move(*options), -1);
  std::array<int, 2> ready{};
  if (::pipe2(ready.data(), O_CLOEXEC) != 0) return Complain(FailErrno("pipe").error());
  pid_t child = ::fork();
  if (child < 0) return Complain(FailErrno("fork").error());
  if (child > 0) {
    ::close(ready[1]);
    return AwaitReady(child, ready[0]);
  }
  ::close(ready[0]);
  ::setsid();
  return Serve(std::move(*options), ready[1]);
}

}  // namespace sandbar::spawner
