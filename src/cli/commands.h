// The client commands. Each takes what was parsed and returns the process's exit code; errors are printed by the
// caller. They talk HTTP only, so they work from any machine that has SANDBAR_URL and SANDBAR_TOKEN.
#pragma once

#include <functional>

#include "async/task.h"
#include "cli/options.h"
#include "cli/server_endpoint.h"
#include "evals/case.h"

namespace sandbar::cli {

struct CommandHandle;

// Exit codes of ours where a command's own code could come: as other tools that run commands for you.
inline constexpr int kExitOurs = 125;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitTimeout = 124;
inline constexpr int kExitKilled = 137;
inline constexpr int kExitInterrupted = 130;
// When the server had to change output to show it.
inline constexpr char kReplacedRemark[] =
    "the output is not all UTF-8 text: every byte that is none was replaced by U+FFFD; exact bytes: write them to a "
    "file "
    "and copy it out (sandbar cp)";

Task<int> Run(ApiClient* api, const Options* options, RunCommand command);
Task<int> Exec(ApiClient* api, const Options* options, ExecCommand command);
Task<int> Attach(ApiClient* api, const Options* options, AttachCommand command);
Task<int> RunCode(ApiClient* api, const Options* options, CodeCommand command);
Task<int> Logs(ApiClient* api, const Options* options, LogsCommand command);
Task<int> Ps(ApiClient* api, const Options* options, PsCommand command);
Task<int> Stop(ApiClient* api, const Options* options, StopCommand command);
Task<int> Rm(ApiClient* api, const Options* options, RmCommand command);
Task<int> Inspect(ApiClient* api, const Options* options, InspectCommand command);
Task<int> Snapshot(ApiClient* api, const Options* options, SnapshotCommand command);
Task<int> Fork(ApiClient* api, const Options* options, ForkCommand command);
Task<int> Pause(ApiClient* api, const Options* options, PauseCommand command);
Task<int> Resume(ApiClient* api, const Options* options, ResumeCommand command);
Task<int> Usage(ApiClient* api, const Options* options);
// The fields of a body that asks for a key.
json::object GrantJson(const GrantOptions& grant);
Task<int> Login(ApiClient* api, const Options* options, LoginCommand command);
Task<int> Key(ApiClient* api, const Options* options, KeyCommand command);
Task<int> Net(ApiClient* api, const Options* options, NetCommand command);
Task<int> Copy(ApiClient* api, const Options* options, CpCommand command);
Task<int> Forward(ApiClient* api, const Options* options, ForwardCommand command);
// Those of one sandbox, or all; without the deleted ones.
Task<json::array> AllSnapshots(ApiClient* api, std::string sandbox);
// 1: one of them is damaged. No ids: all.
Task<int> VerifySnapshots(ApiClient* api, bool as_json, std::vector<std::string> ids);
Task<int> Diff(ApiClient* api, const Options* options, DiffCommand command);
Task<int> Promote(ApiClient* api, const Options* options, PromoteCommand command);
Task<int> Race(ApiClient* api, const Options* options, RaceCommand command);
Task<int> Export(ApiClient* api, const Options* options, ExportCommand command);
Task<int> Import(ApiClient* api, const Options* options, ImportCommand command);
Task<int> Agent(ApiClient* api, const Options* options, llm::RunOptions asked);
Task<int> ClaudeWorker(ApiClient* api, llm::ClaudeWorkerOptions options);
Task<int> Mcp(ApiClient* api, McpCommand command);
// What `eval` needs before there is a server: the cases, and the run to compare with. Its errors are wrong usage.
struct EvalPlan {
  std::vector<evals::EvalCase> cases;
  json::object before;
};
Result<EvalPlan> PlanEval(const llm::EvalOptions& asked);
Result<> ListCases(const std::vector<evals::EvalCase>& cases, bool as_json);
Task<int> Eval(ApiClient* api, const Options* options, llm::EvalOptions asked, EvalPlan plan);
int Kernel(const Options& options, const KernelCommand& command);
// Where the guest kernel is kept: what was given, or beside the images.
std::string KernelDirectory(const std::optional<std::string>& given, const std::optional<std::string>& images);

// What became of running `true` in a sandbox of this engine.
struct EngineProbe {
  std::string name;
  int64_t isolation_class = 0;
  bool is_default = false;  // of sandboxes that demand none
  std::string why_not;      // not usable here; or:
  std::string error;        // it should have worked
  int64_t ms = 0;
};
// Every engine that the server knows.
Task<std::vector<EngineProbe>> ProbeEngines(ApiClient* api);

struct PreviewProbe {
  std::string url;    // of a preview that does not exist
  std::string error;  // why the server did not say so at that address
};
// Whether the names of previews lead to the server, as seen from here.
Task<PreviewProbe> ProbePreviews(ApiClient* api);

// What a running server was asked; empty: there was none.
struct ServerProbes {
  std::vector<EngineProbe> engines;
  std::optional<PreviewProbe> previews;
};
int Doctor(const Options& options, const DoctorCommand& command, const ServerProbes& probes);
// Absolute path of sdk/eval-run.mjs that belongs to this program; empty when it is not installed beside it.
std::string FindEvalRunner();

// Creates the sandbox that `command` describes, runs `work` in it, and deletes it, also after a signal. A sandbox that
// is to be kept stays, also after a signal; the signal then ends only the work and its commands. `command` and
// `options` outlive the task.
using SandboxWork = std::function<Task<int>(std::string name, std::string session)>;
// `started`: the command of the work, when it has one; may be null. The first Ctrl-C goes to that command. When the
// user has left it running, the sandbox stays.
Task<int> InFreshSandbox(ApiClient* api, const Options* options, const RunCommand* command, SandboxWork work,
                         const CommandHandle* started = nullptr);

// Paths of the API.
std::string NamedPath(const std::string& name);
std::string SessionPath(const std::string& session);
const json::array& Array(const json::object& object, std::string_view key);
// The request's `isolation`; nothing when nothing is demanded.
void AddDemand(const IsolationOptions& isolation, json::object* body);
// A network policy: "allow-all", "deny-all" or a JSON file in the SDK's form.
Result<json::value> ReadPolicy(const std::string& word);
// One remark per host that the session's policy denied since then.
Task<> NoteDenials(ApiClient* api, std::string session, int64_t since_ms);
// The error of a call for a named sandbox. Where there is none of that name, with the command that lists them.
Error WithListHint(Error error);
// The id of the session of a named sandbox; `resume`: one that runs, when it has stopped and kept its files.
Task<std::string> SessionOf(ApiClient* api, std::string name, bool resume = false);

}  // namespace sandbar::cli
