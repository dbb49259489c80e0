#include "evals/node.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/fd.h"
#include "base/ids.h"
#include "client/api_client.h"
#include "llm/transcript.h"
#include "wire/json_parse.h"
#include "wire/ndjson.h"

extern char** environ;

namespace sandbar::evals {
namespace {

namespace json = boost::json;
using client::Text;

constexpr size_t kMaxOutput = 16 << 20;

struct Pipe {
  Fd read, write;
  // Sockets, because writing to one that nobody reads can be kept from raising SIGPIPE.
  static Result<Pipe> Make() {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) return FailErrno("socketpair");
    return Pipe{Fd(fds[0]), Fd(fds[1])};
  }
};

std::vector<std::string> Environment(const std::map<std::string, std::string>& more) {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    if (!more.contains(entry.substr(0, entry.find('=')))) out.push_back(entry);
  }
  for (const auto& [name, value] : more) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> Pointers(std::vector<std::string>* words) {
  std::vector<char*> out;
  for (std::string& word : *words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

Result<pid_t> Start(const Program& program, const Pipe& in, const Pipe& out, const Pipe& err) {
  std::vector<std::string> words = program.argv, variables = Environment(program.environment);
  auto argv = Pointers(&words), envp = Pointers(&variables);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, in.read.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
  // We ignore SIGPIPE and wait for others; a child must not inherit that.
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed == ENOENT) return Fail(Code::kNotFound, program.argv[0] + " is not installed");
  if (failed != 0) return FailErrno(program.argv[0], failed);
  return pid;
}

// Feeds and drains the pipes until the program closed both of its ends.
Result<> Talk(const Program& program, Fd in, const Fd& out, const Fd& err, ProgramEnd* end) {
  const int64_t deadline = NowMs() + program.timeout_ms;
  std::string_view left = program.input;
  bool out_open = true, err_open = true;
  while (out_open || err_open) {
    if (left.empty()) in = Fd();
    const int64_t wait = deadline - NowMs();
    if (wait <= 0)
      return Fail(Code::kTimeout,
                  fmt::format("{} did not end within {} s", program.argv[0], program.timeout_ms / 1000));
    std::array<pollfd, 3> fds{{{out_open ? out.get() : -1, POLLIN, 0},
                               {err_open ? err.get() : -1, POLLIN, 0},
                               {in ? in.get() : -1, POLLOUT, 0}}};
    if (::poll(fds.data(), fds.size(), static_cast<int>(wait)) < 0 && errno != EINTR) return FailErrno("poll");
    for (size_t i = 0; i < 2; ++i) {
      if (fds[i].revents == 0) continue;
      std::array<char, 65536> buffer{};
      const ssize_t n = ::read(fds[i].fd, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      std::string& to = i == 0 ? end->out : end->err;
      if (n <= 0) (i == 0 ? out_open : err_open) = false;
      if (n > 0) to.append(buffer.data(), static_cast<size_t>(n));
      if (to.size() > kMaxOutput) return Fail(Code::kTooLarge, program.argv[0] + " prints too much");
    }
    if (fds[2].revents != 0) {
      const ssize_t n = ::send(in.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      // Whoever does not read its input need not get it.
      if (n < 0 && errno != EAGAIN && errno != EINTR) left = {};
      if (n > 0) left.remove_prefix(static_cast<size_t>(n));
    }
  }
  return {};
}

// The runner's answer is the last line of its output: a case file may print too.
Result<json::object> Ask(const NodeRunner& node, const std::string& verb, const std::string& file, std::string input) {
  if (node.runner.empty()) return Fail(Code::kNotFound, "sdk/eval-run.mjs is not beside this program");
  Program program{{"node", node.runner, verb, file}, node.environment, std::move(input)};
  SB_TRY(ProgramEnd end, RunProgram(program));
  std::string_view out = end.out;
  while (out.ends_with('\n')) out.remove_suffix(1);
  const size_t at = out.rfind('\n');
  if (at != std::string_view::npos) out.remove_prefix(at + 1);
  wire::JsonLimits limits;
  limits.bytes = kMaxOutput;
  auto value = wire::ParseJson(out, limits);
  if (end.exit_code != 0 || !value || !value->is_object())
    return Fail(Code::kBadRequest, fmt::format("node ended with {}: {}", end.exit_code, llm::OneLine(end.err, 1000)));
  return std::move(value->as_object());
}

}  // namespace

Result<ProgramEnd> RunProgram(const Program& program) {
  SB_TRY(Pipe in, Pipe::Make());
  SB_TRY(Pipe out, Pipe::Make());
  SB_TRY(Pipe err, Pipe::Make());
  SB_TRY(pid_t pid, Start(program, in, out, err));
  // The child has its own; with ours open we would never see the end.
  for (Fd* ours : {&in.read, &out.write, &err.write}) *ours = Fd();
  ProgramEnd end;
  auto talked = Talk(program, std::move(in.write), out.read, err.read, &end);
  if (!talked) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!talked) return std::unexpected(std::move(talked).error());
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

EvalCase ReadNodeCase(const NodeRunner& node, const std::string& root, const std::string& file) {
  EvalCase out;
  out.id = CaseId(root, file);
  out.file = file;
  auto answer = Ask(node, "describe", file, "");
  if (!answer) {
    out.broken = answer.error().message;
  } else {
    DecodeCase(*answer, &out);
  }
  return out;
}

CheckResult RunAssert(const NodeRunner& node, const std::string& file, const json::object& result) {
  CheckResult out;
  out.name = "assert";
  auto answer = Ask(node, "assert", file, wire::ToAsciiJson(result));
  if (!answer) {
    out.message = answer.error().message;
    return out;
  }
  const json::value* score = answer->if_contains("score");
  if (score != nullptr && score->is_number()) out.score = std::clamp(score->to_number<double>(), 0.0, 1.0);
  out.message = llm::OneLine(Text(*answer, "message"), 500);
  return out;
}

}  // namespace sandbar::evals
