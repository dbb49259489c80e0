#include "cli/env.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/files.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/server_process.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

constexpr size_t kMaxScript = 4 << 20;
constexpr size_t kMaxValues = 1 << 20;

// The lines in a file that only a child of ours sees, whatever their size.
Result<Fd> ScriptFile(const std::string& lines) {
  Fd file(::memfd_create("sandbar-env", MFD_CLOEXEC));
  if (!file) return FailErrno("memfd_create");
  SB_TRYV(WriteAll(file.get(), lines));
  return file;
}

// Where a shell finds it: small shells close descriptors of one digit only.
constexpr int kScriptFd = 9;
constexpr std::string_view kRead = ". /proc/self/fd/9";

bool PlaceScript(const Fd& script) {
  if (script.get() == kScriptFd) return ::fcntl(kScriptFd, F_SETFD, 0) == 0;
  return ::dup2(script.get(), kScriptFd) == kScriptFd;
}

// Becomes the program; returns only when that failed.
Result<int> RunWith(const std::string& lines, const std::vector<std::string>& argv) {
  SB_TRY(Fd script, ScriptFile(lines));
  const std::string start = std::string(kRead) + "; exec 9<&-; exec \"$@\"";
  std::vector<const char*> words{"sh", "-c", start.c_str(), "sandbar env"};
  for (const std::string& word : argv) words.push_back(word.c_str());
  words.push_back(nullptr);
  // A closed pipe is for the program to notice in its own way.
  ::signal(SIGPIPE, SIG_DFL);
  if (!PlaceScript(script)) return FailErrno("dup2");
  ::execv("/bin/sh", const_cast<char* const*>(words.data()));
  return FailErrno("cannot run /bin/sh");
}

// What the lines set, asked of the shell that they are for.
Result<wire::Variables> Evaluate(const std::string& lines) {
  SB_TRY(Fd script, ScriptFile(lines));
  std::string ask = "for n in";
  for (const std::string& name : wire::SdkVariableNames()) ask += " " + name;
  ask = "unset" + ask.substr(8) + "; " + std::string(kRead) + " >&2; " + ask +
        R"(; do eval "v=\${$n-}"; printf '%s=%s\0' "$n" "$v"; done)";
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return FailErrno("pipe2");
  Fd from(ends[0]), into(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return FailErrno("fork");
  if (child == 0) {
    if (::dup2(into.get(), 1) != 1 || !PlaceScript(script)) ::_exit(127);
    ::execl("/bin/sh", "sh", "-ec", ask.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  into.Reset();
  auto text = ReadAll(from.get(), kMaxValues, "the environment that the script sets");
  from.Reset();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text) return std::unexpected(std::move(text).error());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Fail(Code::kProtocol, "the shell could not run the environment script");
  wire::Variables out;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('\0'));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (equals + 1 < pair.size()) out.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
  }
  return out;
}

Result<int> WriteAndTell(const Options& options, const std::string& path, const wire::Variables& values) {
  SB_TRYV(WriteEnvFile(path, values));
  if (options.json) {
    json::object report{{"file", path}};
    SB_TRYV(Out(wire::NdjsonLine(report)));
    return 0;
  }
  Note(path + " has the variables now, readable by its owner alone");
  Note("the file alone does not load the preload; start programs with it: sandbar env -- pnpm dev");
  return 0;
}

// The path of the preload that this NODE_OPTIONS names.
std::string PreloadOf(std::string_view node_options) {
  constexpr std::string_view kStart = "file://";
  const size_t at = node_options.find(kStart);
  if (at == std::string_view::npos) return {};
  node_options.remove_prefix(at + kStart.size());
  if (node_options.ends_with('"')) node_options.remove_suffix(1);
  auto path = wire::PercentDecode(node_options);
  return path ? *std::move(path) : std::string(node_options);
}

// The lines to whoever wants them: a program, a .env file, a reader of JSON, a shell.
Result<int> Deliver(const Options& options, const EnvCommand& command, const std::string& lines) {
  if (!command.argv.empty()) return RunWith(lines, command.argv);
  if (!command.write && !options.json) {
    // For a shell: every byte counts.
    SB_TRYV(WriteAll(1, lines));
    return 0;
  }
  SB_TRY(wire::Variables values, Evaluate(lines));
  if (command.write) return WriteAndTell(options, *command.write, values);
  json::object report{{"register", ""}};
  for (const auto& [name, value] : values) {
    report[name] = value;
    if (name == "NODE_OPTIONS") report["register"] = PreloadOf(value);
  }
  SB_TRYV(Out(wire::NdjsonLine(report)));
  return 0;
}

}  // namespace

Result<int> LocalEnv(const Options& options, const EnvCommand& command, Result<SdkToken> token) {
  if (!token) {
    bool denied = token.error().sys_errno == EACCES;
    return FailWithFix(Code::kNotFound, "no server's key to sign with: " + token.error().message,
                       denied ? "sudo ./sandbar env, or set SANDBAR_URL and SANDBAR_TOKEN" : "sudo ./sandbar up");
  }
  const std::string mjs = FindRegisterMjs();
  if (mjs.empty()) return Fail(Code::kNotFound, "sdk/register.mjs is not beside this program");
  auto endpoint = ReadEndpoint(options.data);
  const std::string url = endpoint ? endpoint->url : std::string("http://") + kDefaultListen;
  if (!endpoint) Note("no server is running for " + options.data + " yet; the lines assume " + url);
  const wire::SdkSettings settings{
      url, token->jwt, token->team, token->project, command.aliases, command.default_net.value_or("")};
  return Deliver(options, command, EnvLines(settings, mjs));
}

Task<int> RemoteEnv(ApiClient* api, const Options* options, EnvCommand command) {
  std::string path = "/sdk/env.sh?aliases=" + std::string(command.aliases ? "1" : "0");
  if (command.default_net) path += "&defaultNet=" + wire::EncodeComponent(*command.default_net);
  http::ClientRequest request = api->Request("GET", path, "");
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  SB_CO_TRY(std::string lines, co_await response->ReadAll(kMaxScript));
  co_return Deliver(*options, command, lines);
}

}  // namespace sandbar::cli
