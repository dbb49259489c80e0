// What the command line said, as values. parse.cc is the only file that knows CLI11; everything else takes these.
//
//   auto parsed = Parse(argc, argv);       // prints help and errors itself
//   if (!parsed.options) return parsed.exit_code;
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "llm/options.h"

namespace sandbar::cli {

// What a sandbox demands of its machine.
struct IsolationOptions {
  std::optional<std::string> engine;
  std::optional<int> min_class;
  bool nesting = false;
};

// `serve`, also used by `up` and by the embedded server of `run`.
struct ServeCommand {
  std::optional<std::string> listen, config, images, tls_cert, tls_key, isolation;
  bool insecure_http = false;
  bool ephemeral = false;
  // For the processes that start a server: where to report readiness, and whose end means "stop everything".
  int ready_fd = -1;
  int lifeline_fd = -1;
};
struct UpCommand {
  ServeCommand serve;
};
struct RestartCommand {
  ServeCommand serve;
};
struct DownCommand {};
struct RunCommand {
  std::optional<std::string> image, runtime, name, cwd;
  std::string network = "deny-all";  // unless one of the two below is given
  std::vector<std::string> allow;
  std::optional<std::string> policy;
  std::optional<int64_t> timeout_ms;
  std::optional<int> vcpus;
  std::vector<std::string> env;
  std::optional<std::string> from;  // a snapshot
  IsolationOptions isolation;
  bool sudo = false;
  bool keep = false;
  bool persistent = false;
  std::vector<std::string> argv;
};
struct CodeCommand {
  std::string name;  // empty: a sandbox that is gone afterwards
  std::optional<std::string> language, context, code, out, image, runtime;
  std::string file;  // when there is no code; "-": standard input
  IsolationOptions isolation;
  std::optional<int64_t> timeout_ms;
};
struct NetCommand {
  std::string verb;  // log, suggest, test, set
  std::string name;
  std::string policy;  // a file, or one of the two words
  bool follow = false;
};
struct PsCommand {
  bool all = false;
};
struct ExecCommand {
  std::string name;
  std::optional<std::string> cwd;
  std::optional<int64_t> timeout_ms;
  std::vector<std::string> env;
  bool sudo = false;
  bool detach = false;
  bool kill = false;  // Ctrl-C ends the command too
  std::vector<std::string> argv;
};
struct LogsCommand {
  std::string name, command;  // command empty: list them
  bool follow = false;
};
struct CpCommand {
  std::string from, to;
};
struct StopCommand {
  std::vector<std::string> names;
};
struct RmCommand {
  std::vector<std::string> names;
};
struct SnapshotCommand {
  std::vector<std::string> words;  // NAME, or: ls [NAME], or: verify [ID…], or: rm ID…
};
struct ForkCommand {
  std::string name;
  std::optional<std::string> as;
  bool live = false;
  IsolationOptions isolation;
};
struct PauseCommand {
  std::vector<std::string> names;
};
struct ResumeCommand {
  std::vector<std::string> names;
  bool memory = false, disk = false;
};
struct UsageCommand {};
struct InspectCommand {
  std::string name;
};
struct ForwardCommand {
  std::string name;
  int port = 0;
  int local = 0;  // 0: any free one
};
struct DiffCommand {
  std::string a, b;  // b empty: a against its image
};
struct PromoteCommand {
  std::string name;
  std::optional<std::string> into;
};
struct RaceCommand {
  std::string name;
  int count = 2;
  std::string score = "exit", best = "highest", keep = "promote";
  std::vector<std::string> argv;
};
struct ExportCommand {
  std::string name, file;
};
struct ImportCommand {
  std::string file;
  std::optional<std::string> name;
  IsolationOptions isolation;
  std::vector<int> ports;
  std::optional<int> vcpus;
  std::optional<int64_t> timeout_ms;
  std::optional<uint64_t> max_size;  // of its files, unpacked
};
struct AgentCommand {
  llm::AgentOptions options;
};
struct EvalCommand {
  llm::EvalOptions options;
};
struct McpCommand {
  std::optional<std::string> sandbox, image, runtime;
  std::optional<std::string> isolation;  // a class or an engine
  std::string network = "deny-all";
  std::vector<std::string> allow;
  bool admin_tools = false;
};
struct TokenCommand {};
struct EnvCommand {
  bool aliases = true;                     // the SDK understands other spellings too
  std::optional<std::string> default_net;  // of sandboxes whose program asks for no network
  std::optional<std::string> write;        // a .env file, instead of printing
  std::vector<std::string> argv;           // a program to run with the environment, instead of printing
};
struct ImageCommand {
  std::string verb;  // ls, build, rm
  std::vector<std::string> names;
  std::optional<std::string> images;
};
struct KernelCommand {
  std::string verb;  // ls, cloud, build, use
  std::string file;
  std::optional<std::string> dir;
};
struct SkillCommand {};
struct ClaudeWorkerCommand {
  llm::ClaudeWorkerOptions options;
};
struct VersionCommand {};
struct DoctorCommand {
  std::optional<std::string> listen, images;
};

using Command =
    std::variant<ServeCommand, UpCommand, RestartCommand, DownCommand, RunCommand, PsCommand, ExecCommand, LogsCommand,
                 CpCommand, StopCommand, RmCommand, InspectCommand, NetCommand, TokenCommand, EnvCommand, ImageCommand,
                 VersionCommand, DoctorCommand, ForwardCommand, SnapshotCommand, ForkCommand, PauseCommand,
                 ResumeCommand, UsageCommand, DiffCommand, PromoteCommand, RaceCommand, ExportCommand, ImportCommand,
                 McpCommand, AgentCommand, EvalCommand, SkillCommand, CodeCommand, ClaudeWorkerCommand, KernelCommand>;

struct Options {
  std::string data;         // --data, SANDBAR_DATA or /var/lib/sandbar
  bool data_given = false;  // by --data, which wins over SANDBAR_URL; SANDBAR_DATA does not
  bool json = false;
  Command command;
};

struct Parsed {
  std::optional<Options> options;
  int exit_code = 0;  // when there are none: 0 after --help, 2 after a usage error
};

inline constexpr char kDefaultData[] = "/var/lib/sandbar";
inline constexpr char kDefaultImages[] = "/var/cache/sandbar/images";
inline constexpr char kDefaultListen[] = "127.0.0.1:8787";

Parsed Parse(int argc, const char* const* argv);

// "90", "90s", "5m", "2h", "1500ms" -> milliseconds; plain numbers are seconds.
std::optional<int64_t> ParseDuration(const std::string& text);

}  // namespace sandbar::cli
