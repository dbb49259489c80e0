#include "cli/server_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "cli/output.h"
#include "wire/json_parse.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kEmbeddedRoot[] = "/var/lib/sandbar-run";
constexpr int kStartTimeoutMs = 60'000;

std::string ProgramPath() {
  std::error_code ec;
  auto path = fs::read_symlink("/proc/self/exe", ec);
  return ec ? "sandbar" : path.string();
}

// What the server said last since `from`, where this attempt began: the reason why it did not start is there.
std::string Tail(const std::string& log, size_t from) {
  auto text = ReadFile(log);
  if (!text) return {};
  std::string_view rest(*text);
  rest.remove_prefix(std::min(from, rest.size()));
  while (rest.ends_with('\n')) rest.remove_suffix(1);
  size_t lines = 0, at = rest.size();
  while (at > 0 && lines < 5)
    if (rest[--at] == '\n') ++lines;
  return std::string(rest.substr(at == 0 ? 0 : at + 1));
}

struct Spawn {
  std::vector<std::string> words;
  std::string log;
  bool own_session = false;
  bool lifeline = false;
};

// Between fork and exec only async-signal-safe calls: everything is prepared before.
[[noreturn]] void ExecServer(const Spawn& spawn, char* const* argv, int log, int ready, int lifeline) {
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, 0);
  ::dup2(log, 1);
  ::dup2(log, 2);
  // Fixed numbers, so that the words could be written before the pipes existed.
  ::dup2(ready, 3);
  if (lifeline >= 0) ::dup2(lifeline, 4);
  ::close_range(lifeline >= 0 ? 5 : 4, ~0U, 0);
  // Its own session in both cases: Ctrl-C at our terminal is for us; the server stops when we say so.
  ::setsid();
  if (spawn.own_session && ::chdir("/") != 0) ::_exit(126);
  ::execv(argv[0], argv);
  ::_exit(127);
}

Result<json::object> AwaitReady(int fd, pid_t pid, const std::string& log, size_t log_begin) {
  std::string text;
  for (;;) {
    pollfd p{fd, POLLIN, 0};
    int n = ::poll(&p, 1, kStartTimeoutMs);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return Fail(Code::kTimeout, "the server did not answer within a minute; its log is " + log);
    char buffer[4096];
    ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
    if (text.ends_with('\n')) break;
  }
  auto value = wire::ParseJson(text);
  if (!text.empty() && value && value->is_object()) return std::move(value->as_object());
  int status = 0;
  ::waitpid(pid, &status, 0);
  std::string why = Tail(log, log_begin);
  return Fail(Code::kUnavailable, "the server did not start" + (why.empty() ? std::string() : ":\n" + why));
}

Result<StartedServer> Launch(Spawn spawn) {
  int ready[2], lifeline[2] = {-1, -1};
  if (::pipe2(ready, O_CLOEXEC) != 0) return FailErrno("pipe");
  Fd ready_read(ready[0]), ready_write(ready[1]);
  if (spawn.lifeline && ::pipe2(lifeline, O_CLOEXEC) != 0) return FailErrno("pipe");
  Fd lifeline_read(lifeline[0]), lifeline_write(lifeline[1]);
  Fd log(::open(spawn.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!log) return FailErrno("open " + spawn.log);
  auto log_begin = static_cast<size_t>(std::max<off_t>(::lseek(log.get(), 0, SEEK_END), 0));
  // The fixed numbers 3 and 4 must not be overwritten before they are used: move the originals out of the way.
  Fd ready_high(::fcntl(ready_write.get(), F_DUPFD_CLOEXEC, 10));
  Fd lifeline_high(spawn.lifeline ? ::fcntl(lifeline_read.get(), F_DUPFD_CLOEXEC, 10) : -1);
  Fd log_high(::fcntl(log.get(), F_DUPFD_CLOEXEC, 10));
  spawn.words.insert(spawn.words.begin(), ProgramPath());
  std::vector<char*> argv;
  for (auto& word : spawn.words) argv.push_back(word.data());
  argv.push_back(nullptr);

  pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) ExecServer(spawn, argv.data(), log_high.get(), ready_high.get(), lifeline_high.get());
  ready_write.Reset();
  ready_high.Reset();
  SB_TRY(json::object answer, AwaitReady(ready_read.get(), pid, spawn.log, log_begin));
  StartedServer started;
  started.server = {Text(answer, "url"), Text(answer, "token")};
  started.pid = pid;
  started.lifeline = std::move(lifeline_write);
  started.log = spawn.log;
  return started;
}

void AddFlag(std::vector<std::string>* words, const char* name, const std::optional<std::string>& value) {
  if (!value) return;
  words->push_back(name);
  words->push_back(*value);
}

// Directories that an embedded server left because it was killed: free when nobody holds their lock.
void SweepEmbedded() {
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(kEmbeddedRoot, ec)) {
    // The spawner outlives its server by the time it needs to clean up; its lock goes last.
    Fd lock(::open((entry.path() / "run/lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    fs::remove_all(entry.path(), ec);
  }
}

}  // namespace

std::string ProgramDirectory() {
  return fs::path(ProgramPath()).parent_path().string();
}

std::vector<std::string> FlagWords(const ServeCommand& serve) {
  std::vector<std::string> words;
  AddFlag(&words, "--listen", serve.listen);
  AddFlag(&words, "--config", serve.config);
  AddFlag(&words, "--images", serve.images);
  AddFlag(&words, "--tls-cert", serve.tls_cert);
  AddFlag(&words, "--tls-key", serve.tls_key);
  AddFlag(&words, "--isolation", serve.isolation);
  if (serve.insecure_http) words.push_back("--insecure-http");
  return words;
}

Result<StartedServer> StartBackground(const Options& options, const ServeCommand& serve) {
  if (::geteuid() != 0)
    return FailNeedsRoot("starting a server needs root (it makes namespaces and mounts)", "sudo ./sandbar up");
  std::error_code ec;
  // As in PrepareDataDir: the daemon has to get through the directories above its own.
  const mode_t mask = ::umask(0022);
  fs::create_directories(options.data, ec);
  ::umask(mask);
  if (ec) return Fail(Code::kIo, "cannot make " + options.data + ": " + ec.message());
  Spawn spawn;
  spawn.words = {"serve", "--data", options.data, "--ready-fd", "3"};
  for (std::string& word : FlagWords(serve)) spawn.words.push_back(std::move(word));
  spawn.log = options.data + "/serve.log";
  spawn.own_session = true;
  return Launch(std::move(spawn));
}

Result<StartedServer> StartEmbedded(const Options& options) {
  if (::geteuid() != 0)
    return FailNeedsRoot(
        "no server is running for " + options.data + ", and starting one needs root",
        "sudo ./sandbar up   # then: export SANDBAR_URL=… SANDBAR_TOKEN=…   (sandbar env, sandbar token)");
  std::error_code ec;
  fs::create_directories(kEmbeddedRoot, ec);
  // The daemon's user must be able to reach its own directory below, nothing more.
  ::chmod(kEmbeddedRoot, 0711);
  SweepEmbedded();
  std::string data = std::string(kEmbeddedRoot) + "/XXXXXX";
  if (::mkdtemp(data.data()) == nullptr) return FailErrno("make a directory in " + std::string(kEmbeddedRoot));
  Spawn spawn;
  spawn.words = {"serve",      "--ephemeral", "--data",        data, "--listen", "127.0.0.1:0",
                 "--ready-fd", "3",           "--lifeline-fd", "4"};
  spawn.log = data + "/serve.log";
  spawn.lifeline = true;
  auto started = Launch(std::move(spawn));
  if (!started) fs::remove_all(data, ec);
  return started;
}

void StopEmbedded(StartedServer* started) {
  if (started->pid <= 0) return;
  started->lifeline.Reset();
  int status = 0;
  while (::waitpid(started->pid, &status, 0) < 0 && errno == EINTR) {
  }
  // The server leaves its directory to us: it has no rights on the parent.
  std::error_code ec;
  fs::remove_all(fs::path(started->log).parent_path(), ec);
  started->pid = -1;
}

}  // namespace sandbar::cli
