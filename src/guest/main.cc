// sandbar-guest --listen-fd N | --stream-fd N [--join-fds A,B,…] [--elevate FILE [--elevate-at SOCKET]]
// sandbar-guest --enter N --status N: waits for a machine, and is then its first process (os/machine_init.h).
// As the first program of a virtual machine it takes no arguments (guest/vm_init.h). Under the name that
// guest/elevate_client.h says it is a sudo.
#include <fcntl.h>
#include <sys/reboot.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "guest/agent.h"
#include "guest/elevate_client.h"
#include "guest/launch.h"
#include "guest/vm_init.h"
#include "os/machine_init.h"

namespace {

bool ParseFds(std::string_view text, int least, std::vector<int>& out) {
  while (!text.empty()) {
    size_t n = std::min(text.find(','), text.size());
    int fd = -1;
    auto [end, ec] = std::from_chars(text.data(), text.data() + n, fd);
    if (ec != std::errc() || end != text.data() + n || fd < least || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
      return false;
    out.push_back(fd);
    text.remove_prefix(std::min(n + 1, text.size()));
  }
  return true;
}

// Whatever else was inherited, no command and no file worker can reach.
void CloseAllBut(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
  unsigned next = 3;
  for (int fd : keep) {
    auto at = static_cast<unsigned>(fd);
    if (at > next) ::close_range(next, at - 1, 0);
    next = at + 1;
  }
  ::close_range(next, sandbar::guest::kLastFd, 0);
}

// A stream that came as standard input: no command may inherit it.
int MoveAway(int fd) {
  int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || ::dup2(null, fd) != fd) ::close(fd);
  ::close(null);
  return moved;
}

sandbar::Result<sandbar::guest::VmStart> StartVm(const std::vector<std::string_view>& words) {
  std::vector<int> fds;
  if (words.size() == 4 && words[1] == sandbar::guest::kVmRestored && ParseFds(words[2], 3, fds) &&
      ParseFds(words[3], 3, fds))
    return sandbar::guest::ResumeVm(sandbar::Fd(fds[0]), sandbar::Fd(fds[1]));
  // The console, for what goes wrong before there is anybody to tell.
  for (int fd = ::open("/dev/console", O_RDWR); fd >= 0 && fd < 2;) fd = ::dup(fd);
  return sandbar::guest::BecomeVm();
}

int RunVm(const std::vector<std::string_view>& words) {
  // The spawner only wants to know whether this kernel starts the agent.
  if (words.size() > 1 && words[1] == "probe") return ::reboot(RB_AUTOBOOT);
  auto vm = StartVm(words);
  if (!vm) {
    std::fprintf(stderr, "sandbar-guest: %s\n", vm.error().message.c_str());
    ::sync();
    ::reboot(RB_AUTOBOOT);
    return 1;
  }
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  sandbar::guest::AgentOptions options;
  options.stream = std::move(vm->agent);
  options.written = std::move(vm->written);
  options.own_kernel = true;
  options.machine_key = std::move(vm->machine_key);
  sandbar::guest::Agent agent(std::move(options));
  agent.Run();
}

int RunEntered(int control, int told) {
  // Out of the way of what another program would get, and gone when that has started.
  int status = ::fcntl(told, F_DUPFD_CLOEXEC, 512);
  if (status < 0) status = told;
  if (status != told) ::close(told);
  auto entered = sandbar::os::EnterMachine(control);
  if (entered && entered->kept.empty()) entered = sandbar::Fail(sandbar::Code::kProtocol, "no socket to listen on");
  if (!entered) {
    sandbar::os::ReportInitError(status, entered.error());
    return 127;
  }
  std::vector<int> keep = {status};
  for (const sandbar::Fd& fd : entered->kept) keep.push_back(fd.get());
  if (entered->statfs) {
    const sandbar::os::StatfsDuty& duty = *entered->statfs;
    for (const sandbar::Fd* fd : {&duty.calls.listener, &duty.figures, &duty.ask}) keep.push_back(fd->get());
  }
  CloseAllBut(std::move(keep));
  sandbar::guest::AgentOptions options;
  options.listener = std::move(entered->kept.front());
  for (size_t i = 1; i < entered->kept.size(); ++i) options.join_fds.push_back(std::move(entered->kept[i]));
  options.statfs = std::move(entered->statfs);
  sandbar::guest::Agent agent(std::move(options));
  ::close(status);
  agent.Run();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 0 && argv[0] == sandbar::guest::kElevateWord) return sandbar::guest::RunElevateClient(argc, argv, environ);
  if (::getpid() == 1 && std::string_view(argv[0]) == "/init") return RunVm({argv, argv + argc});
  if (argc == 5 && std::string_view(argv[1]) == "--enter") return RunEntered(std::atoi(argv[2]), std::atoi(argv[4]));
  std::vector<int> listen, stream, join;
  std::string elevated, elevate_at;
  bool ok = argc % 2 == 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string_view flag = argv[i];
    if (flag == "--listen-fd") {
      ok = ok && ParseFds(argv[i + 1], 3, listen);
    } else if (flag == "--stream-fd") {
      ok = ok && ParseFds(argv[i + 1], 0, stream);
    } else if (flag == "--elevate") {
      elevated = argv[i + 1];
    } else if (flag == "--elevate-at") {
      elevate_at = argv[i + 1];
    } else {
      ok = ok && flag == "--join-fds" && ParseFds(argv[i + 1], 3, join);
    }
  }
  if (!ok || listen.size() + stream.size() != 1) {
    std::fprintf(stderr,
                 "usage: sandbar-guest --listen-fd N | --stream-fd N [--join-fds A,B] [--elevate FILE [--elevate-at "
                 "SOCKET]]\n");
    return 2;
  }
  if (!stream.empty() && stream[0] < 3) stream[0] = MoveAway(stream[0]);
  // 0, 1 and 2 must exist, or a pipe could get one of their numbers.
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0 && fd < 3;) fd = ::dup(fd);
  std::vector<int> keep = join;
  keep.push_back(listen.empty() ? stream[0] : listen[0]);
  CloseAllBut(std::move(keep));
  if (::chdir("/") != 0) return 1;
  sandbar::guest::AgentOptions options;
  if (!listen.empty()) options.listener = sandbar::Fd(listen[0]);
  if (!stream.empty()) options.stream = sandbar::Fd(stream[0]);
  for (int fd : join) options.join_fds.emplace_back(fd);
  options.elevated = std::move(elevated);
  options.elevate_at = std::move(elevate_at);
  sandbar::guest::Agent agent(std::move(options));
  agent.Run();
}
