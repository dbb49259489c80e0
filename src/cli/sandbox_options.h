// The words of commands about sandboxes, as values: run, exec, cp, snapshot, fork … cli/options.h has all commands.
// Values, for any thread.
//
//   RunCommand run{.image = "node", .argv = {"node", "app.js"}};
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sandbar::cli {

// What a sandbox demands of its machine.
struct IsolationOptions {
  std::optional<std::string> engine;
  std::optional<int> min_class;
  bool nesting = false;
};

// What a command gets of the terminal or the pipes that sandbar was started with.
struct IoOptions {
  bool interactive = false;  // -i: standard input, also when it is a terminal
  bool terminal = false;     // -t
  bool no_input = false;     // -n
};

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
  bool is_sh = false;  // of `sandbar sh`
  IoOptions io;
  std::vector<std::string> argv;  // empty: a shell
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
  bool kill = false;  // leaving ends the command too
  IoOptions io;
  std::vector<std::string> argv;  // empty: a shell
};
struct AttachCommand {
  std::string name, command;  // command empty: the newest that runs
  IoOptions io;
};
struct ShCommand {
  std::string name;  // empty: a new sandbox
  bool remove = false;
  RunCommand fresh;
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

}  // namespace sandbar::cli
