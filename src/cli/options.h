// What the command line said, as values: one struct per command, in host_options.h, sandbox_options.h and, for the
// commands that work with models, here. Only parse.cc and parse_llm.cc know CLI11. Values of the main
// thread, which outlive the command.
//
//   auto parsed = Parse(argc, argv);       // prints help and errors itself
//   if (!parsed.options) return parsed.exit_code;
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/host_options.h"
#include "cli/sandbox_options.h"
#include "llm/options.h"

namespace sandbar::cli {

struct AgentCommand {
  llm::RunOptions options;
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
struct ClaudeWorkerCommand {
  llm::ClaudeWorkerOptions options;
};

using Command =
    std::variant<ServeCommand, UpCommand, RestartCommand, DownCommand, RunCommand, PsCommand, ExecCommand, LogsCommand,
                 CpCommand, StopCommand, RmCommand, InspectCommand, NetCommand, TokenCommand, EnvCommand, ImageCommand,
                 VersionCommand, DoctorCommand, ForwardCommand, SnapshotCommand, ForkCommand, PauseCommand,
                 ResumeCommand, UsageCommand, DiffCommand, PromoteCommand, RaceCommand, ExportCommand, ImportCommand,
                 McpCommand, AttachCommand, AgentCommand, EvalCommand, SkillCommand, CodeCommand, ClaudeWorkerCommand,
                 KernelCommand, KeyCommand, LoginCommand>;

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

Parsed Parse(int argc, const char* const* argv);

}  // namespace sandbar::cli
