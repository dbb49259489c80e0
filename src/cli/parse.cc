#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <tuple>

#include "cli/options.h"

namespace sandbar::cli {
namespace {

// Everything that CLI11 fills in; the chosen subcommand's part becomes the result.
struct Raw {
  Options options;
  ServeCommand serve, up;
  RunCommand run;
  CodeCommand code;
  std::vector<std::string> code_words;
  PsCommand ps;
  ExecCommand exec;
  LogsCommand logs;
  CpCommand cp;
  StopCommand stop;
  RmCommand rm;
  InspectCommand inspect;
  NetCommand net;
  ForwardCommand forward;
  McpCommand mcp;
  ImageCommand image;
  DoctorCommand doctor;
  AgentCommand agent;
  ClaudeWorkerCommand claude_worker;
  EvalCommand eval;
  std::string agent_timeout, worker_timeout, worker_idle, run_timeout, exec_timeout, code_timeout, forward_port;
};

void AddServeFlags(CLI::App* sub, ServeCommand* c) {
  sub->add_option("--listen", c->listen, "HOST:PORT to listen on (default 127.0.0.1:8787; port 0 picks one)");
  sub->add_option("--config", c->config, "TOML file (docs/operations.md)");
  sub->add_option("--images", c->images, "directory of prepared images (default /var/cache/sandbar/images)");
  sub->add_option("--tls-cert", c->tls_cert, "certificate chain (PEM); with --tls-key the server speaks HTTPS");
  sub->add_option("--tls-key", c->tls_key, "private key (PEM)");
  sub->add_flag("--insecure-http", c->insecure_http, "allow plain HTTP on an address that is not loopback");
}

std::string CheckDuration(const std::string& text) {
  return ParseDuration(text) ? std::string() : "'" + text + "' is no duration; write 90s, 5m or 2h";
}

std::string CheckEnv(const std::string& text) {
  size_t at = text.find('=');
  return at == std::string::npos || at == 0 ? "'" + text + "' is not NAME=VALUE" : std::string();
}

std::optional<int> PortNumber(std::string_view text, int least) {
  int port = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (ec != std::errc() || end != text.data() + text.size() || port < least || port > 65535) return std::nullopt;
  return port;
}

// "3000" or "3000:8080".
std::optional<std::pair<int, int>> ParseForward(std::string_view text) {
  const size_t colon = text.find(':');
  auto port = PortNumber(text.substr(0, colon), 2);
  auto local = colon == std::string_view::npos ? port : PortNumber(text.substr(colon + 1), 0);
  if (!port || !local) return std::nullopt;
  return std::pair(*port, *local);
}

std::string CheckForward(const std::string& text) {
  return ParseForward(text) ? std::string() : "'" + text + "' is not PORT or PORT:LOCAL";
}

void AddCommon(CLI::App* app, Raw* raw) {
  app->add_option("--data", raw->options.data, "data directory (default /var/lib/sandbar; SANDBAR_DATA)");
  app->add_flag("--json", raw->options.json, "machine-readable output");
}

void AddServer(CLI::App* app, Raw* raw) {
  auto* serve = app->add_subcommand("serve", "Run the server in the foreground (root; drops its privileges)");
  AddServeFlags(serve, &raw->serve);
  serve->add_flag("--ephemeral", raw->serve.ephemeral, "stop every machine when the server exits");
  serve->add_option("--ready-fd", raw->serve.ready_fd)->group("");
  serve->add_option("--lifeline-fd", raw->serve.lifeline_fd)->group("");
  AddServeFlags(app->add_subcommand("up", "Start the server in the background and wait until it answers"), &raw->up);
  app->add_subcommand("down", "Stop every sandbox and the server");
  app->add_subcommand("token", "Print the API token");
  app->add_subcommand("skill", "Print a short guide for coding agents");
  app->add_subcommand("env", "Print shell lines that point the Vercel SDK here: eval \"$(sandbar env)\"");
  app->add_subcommand("version", "Print the version");
  auto* doctor = app->add_subcommand("doctor", "Check what this machine offers, with a fix for what is missing");
  doctor->add_option("--listen", raw->doctor.listen);
  doctor->add_option("--images", raw->doctor.images);
  auto* image = app->add_subcommand("image", "List, build and remove images");
  image->require_subcommand(1);
  image->add_option("--images", raw->image.images, "directory of prepared images");
  image->add_subcommand("ls", "List the prepared images");
  image->add_subcommand("build", "Prepare images: node24 node22 python3.13 bun universal data")
      ->add_option("NAME", raw->image.names)
      ->required();
  image->add_subcommand("rm", "Remove images")->add_option("NAME", raw->image.names)->required();
  for (auto* sub : image->get_subcommands(nullptr)) sub->fallthrough();
}

void AddSandboxes(CLI::App* app, Raw* raw) {
  auto* run = app->add_subcommand("run", "Run one command in a fresh sandbox: sandbar run -- node -e 1");
  run->add_option("--image", raw->run.image, "image, e.g. vercel/sandbox/universal");
  run->add_option("--runtime", raw->run.runtime, "node24 (default), node22, python3.13, bun");
  auto* net = run->add_option("--net", raw->run.network, "deny-all (default) or allow-all")
                  ->check(CLI::IsMember({"deny-all", "allow-all"}));
  auto* allow = run->add_option("--allow", raw->run.allow, "a domain it may reach, e.g. example.com or *.example.com")
                    ->take_all()
                    ->allow_extra_args(false)
                    ->excludes(net);
  run->add_option("--policy", raw->run.policy, "network policy, a JSON file in the SDK's form")
      ->excludes(net)
      ->excludes(allow);
  run->add_option("--timeout", raw->run_timeout, "life of the sandbox, e.g. 90s, 5m (default 1h)")
      ->check(CheckDuration);
  run->add_option("--vcpus", raw->run.vcpus, "1 or an even number");
  run->add_option("-e,--env", raw->run.env, "NAME=VALUE")->check(CheckEnv)->take_all()->allow_extra_args(false);
  run->add_option("-w,--cwd", raw->run.cwd, "working directory");
  run->add_option("--name", raw->run.name, "name of the sandbox");
  run->add_flag("--sudo", raw->run.sudo, "run as root of the sandbox");
  run->add_flag("--keep", raw->run.keep, "keep the sandbox afterwards");
  run->prefix_command();
  auto* exec = app->add_subcommand("exec", "Run a command in a sandbox: sandbar exec NAME -- ls -la");
  exec->add_option("NAME", raw->exec.name)->required();
  exec->add_option("-e,--env", raw->exec.env, "NAME=VALUE")->check(CheckEnv)->take_all()->allow_extra_args(false);
  exec->add_option("-w,--cwd", raw->exec.cwd, "working directory");
  exec->add_option("--timeout", raw->exec_timeout, "kill the command after this")->check(CheckDuration);
  exec->add_flag("--sudo", raw->exec.sudo, "run as root of the sandbox");
  exec->add_flag("-d,--detach", raw->exec.detach, "do not wait; prints the command's id");
  exec->prefix_command();
  auto* ps = app->add_subcommand("ps", "List sandboxes");
  ps->add_flag("-a,--all", raw->ps.all, "stopped ones too");
  auto* logs = app->add_subcommand("logs", "Output of a command; without one, list the commands");
  logs->add_option("NAME", raw->logs.name)->required();
  logs->add_option("COMMAND", raw->logs.command);
  logs->add_flag("-f,--follow", raw->logs.follow, "go on until the command ends");
  auto* cp = app->add_subcommand("cp", "Copy a file or directory in, or a file out: NAME:PATH is the sandbox's side");
  cp->add_option("SRC", raw->cp.from)->required();
  cp->add_option("DST", raw->cp.to)->required();
  auto* forward = app->add_subcommand("forward", "Reach a port of a sandbox on this machine, until Ctrl-C");
  forward->add_option("NAME", raw->forward.name)->required();
  forward->add_option("PORT[:LOCAL]", raw->forward_port, "LOCAL: the port here (default: the same; 0: any free one)")
      ->check(CheckForward)
      ->required();
  app->add_subcommand("stop", "Stop sandboxes")->add_option("NAME", raw->stop.names)->required();
  app->add_subcommand("rm", "Stop and delete sandboxes")->add_option("NAME", raw->rm.names)->required();
  app->add_subcommand("inspect", "Everything known about a sandbox, as JSON")
      ->add_option("NAME", raw->inspect.name)
      ->required();
}

void AddMcp(CLI::App* app, Raw* raw) {
  auto* mcp = app->add_subcommand("mcp", "Serve MCP on standard input and output, for agents (docs/mcp.md)");
  mcp->add_option("--sandbox", raw->mcp.sandbox,
                  "work in this one, and leave it (default: a fresh one, removed at the end)");
  mcp->add_flag("--admin-tools", raw->mcp.admin_tools, "the model also gets snapshot, fork and network");
  auto* image = mcp->add_option("--image", raw->mcp.image, "image of a fresh sandbox, e.g. vercel/sandbox/universal");
  mcp->add_option("--runtime", raw->mcp.runtime, "or its runtime: node24, node22, python3.13, bun")->excludes(image);
  auto* net = mcp->add_option("--net", raw->mcp.network, "its network: deny-all (default) or allow-all")
                  ->check(CLI::IsMember({"deny-all", "allow-all"}));
  mcp->add_option("--allow", raw->mcp.allow, "a domain it may reach, e.g. example.com or *.example.com")
      ->take_all()
      ->allow_extra_args(false)
      ->excludes(net);
}

void AddCode(CLI::App* app, Raw* raw) {
  auto* code = app->add_subcommand("code", "Run code whose variables stay: sandbar code NAME -c 'x = 6 * 7'");
  code->add_option("[NAME] FILE", raw->code_words,
                   "NAME: its sandbox (default: a fresh one); FILE: the code, - is stdin");
  code->add_option("-c", raw->code.code, "the code itself, instead of FILE");
  code->add_option("--lang", raw->code.language, "python (default), javascript, typescript, bash; or by FILE's ending")
      ->check(CLI::IsMember({"python", "javascript", "typescript", "bash"}));
  code->add_option("--context", raw->code.context, "context of the sandbox (default: the language's own)");
  code->add_option("--timeout", raw->code_timeout, "interrupt it after this, e.g. 30s (default 2m)")
      ->check(CheckDuration);
  code->add_option("--out", raw->code.out, "directory to save images to");
  code->add_option("--image", raw->code.image, "image of a fresh sandbox");
  code->add_option("--runtime", raw->code.runtime, "runtime of a fresh sandbox");
}

// One word is the file, two are the sandbox and the file; with -c the word is the sandbox. What is wrong, else empty.
std::string ArrangeCode(CodeCommand* code, const std::vector<std::string>& words) {
  if (words.size() > (code->code ? 1U : 2U)) return "too many words";
  if (!code->code && words.empty()) return "no code given";
  if (code->code ? !words.empty() : words.size() == 2) code->name = words.front();
  if (!code->code) code->file = words.back();
  if (code->name.empty() && code->context) return "--context needs the NAME of a sandbox";
  if (!code->name.empty() && (code->image || code->runtime)) return "--image and --runtime are for a fresh sandbox";
  if (code->image && code->runtime) return "--image and --runtime exclude each other";
  if (!code->language && !code->context) {
    const std::string ending = std::filesystem::path(code->file).extension().string();
    code->language = "python";
    if (ending == ".js" || ending == ".mjs" || ending == ".cjs") code->language = "javascript";
    if (ending == ".ts" || ending == ".mts") code->language = "typescript";
    if (ending == ".sh" || ending == ".bash") code->language = "bash";
  }
  return {};
}

void AddNet(CLI::App* app, Raw* raw) {
  auto* net = app->add_subcommand("net", "A sandbox's network: what it tried, and its policy");
  net->require_subcommand(1);
  auto verb = [net, raw](const char* name, const char* what) {
    auto* sub = net->add_subcommand(name, what);
    sub->add_option("NAME", raw->net.name)->required();
    sub->fallthrough();
    return sub;
  };
  verb("log", "What it tried to reach, and what was denied and why")
      ->add_flag("-f,--follow", raw->net.follow, "go on and print denials as they come");
  verb("suggest", "The smallest policy that would have allowed what it tried");
  verb("test", "What another policy would change; exit code 1 when something that worked would be denied")
      ->add_option("POLICY", raw->net.policy, "JSON file, allow-all or deny-all")
      ->required();
  verb("set", "Replace the policy of the running sandbox")
      ->add_option("POLICY", raw->net.policy, "JSON file, allow-all or deny-all")
      ->required();
}

void AddLimits(CLI::App* sub, agent::Limits* limits, std::string* timeout) {
  sub->add_option("--max-steps", limits->max_steps, "replies of the model (default 20)")->check(CLI::Range(1, 10'000));
  sub->add_option("--max-tokens", limits->max_tokens, "tokens in and out together")->check(CLI::PositiveNumber);
  sub->add_option("--timeout", *timeout, "of the whole run, e.g. 90s, 5m (default 10m)")->check(CheckDuration);
}

void AddAgent(CLI::App* app, Raw* raw) {
  agent::AgentOptions* o = &raw->agent.options;
  auto* sub = app->add_subcommand("agent", "Let a model work on a task in a fresh sandbox: sandbar agent \"…\"");
  sub->add_option("PROMPT", o->prompt, "the task")->required();
  sub->add_option("--model", o->model, "anthropic:ID, openai:ID[@URL], scripted:FILE, replay:FILE (or SANDBAR_MODEL)");
  AddLimits(sub, &o->limits, &raw->agent_timeout);
  auto* image = sub->add_option("--image", o->image, "image, e.g. vercel/sandbox/universal");
  auto* runtime =
      sub->add_option("--runtime", o->runtime, "node24 (default), node22, python3.13, bun")->excludes(image);
  auto* from = sub->add_option("--from", o->from, "a snapshot to start from")->excludes(image)->excludes(runtime);
  auto* net = sub->add_option("--net", o->net, "deny (default), allow or allow:host,host");
  sub->add_option("--sandbox", o->sandbox, "one that exists; it stays")
      ->excludes(image)
      ->excludes(runtime)
      ->excludes(from)
      ->excludes(net);
  sub->add_option("--upload", o->upload, "directory whose files go into the working directory");
  sub->add_option("--download", o->download, "files to fetch afterwards, e.g. 'out/*.csv'")
      ->take_all()
      ->allow_extra_args(false);
  sub->add_option("--to", o->to, "directory for the downloads (default: here)");
  sub->add_option("--record", o->record, "transcript, one JSON object per line");
  sub->add_option("--html", o->html, "transcript as one HTML page");
  sub->add_flag("-q,--quiet", o->quiet, "no live view");
}

void AddClaudeWorker(CLI::App* app, Raw* raw) {
  agent::ClaudeWorkerOptions* o = &raw->claude_worker.options;
  auto* sub =
      app->add_subcommand("claude-worker", "Run the tools of Claude's managed agents in sandboxes of this server");
  sub->add_option("--environment", o->environment, "id of the self-hosted environment (or ANTHROPIC_ENVIRONMENT_ID)");
  auto* image = sub->add_option("--image", o->image, "image of the sandboxes");
  auto* runtime =
      sub->add_option("--runtime", o->runtime, "node24 (default), node22, python3.13, bun")->excludes(image);
  sub->add_option("--from", o->from, "a snapshot to start from")->excludes(image)->excludes(runtime);
  sub->add_option("--net", o->net, "deny (default), allow or allow:host,host");
  sub->add_option("--timeout", raw->worker_timeout, "of a sandbox (default 1h)")->check(CheckDuration);
  sub->add_option("--max-idle", raw->worker_idle, "of a session after a turn (default 60s)")->check(CheckDuration);
  sub->add_flag("--once", o->once, "end when there is no work");
}

void AddEval(CLI::App* app, Raw* raw) {
  agent::EvalOptions* o = &raw->eval.options;
  auto* sub = app->add_subcommand("eval", "Run a directory of eval cases, each trial in a fresh fork");
  sub->add_option("DIR", o->path, "cases: .yaml and .mjs files (docs/evals.md)")->required();
  sub->add_option("--model", o->model, "for every case (default: each case's own)");
  sub->add_option("--trials", o->trials, "of every case")->check(CLI::Range(1, 1000));
  sub->add_option("--max-concurrency", o->max_concurrency, "trials at a time (default 4)")->check(CLI::Range(1, 64));
  sub->add_option("--tag", o->tags, "only cases with this tag; several: any of them")
      ->take_all()
      ->allow_extra_args(false);
  sub->add_option("--junit", o->junit, "report as JUnit XML");
  sub->add_option("--compare", o->compare, "table against an earlier run's --json output");
  auto* record = sub->add_option("--record", o->record, "directory for the transcripts");
  auto* replay = sub->add_option("--replay", o->replay, "directory of transcripts to take the replies from");
  replay->excludes(record)->excludes("--model");
  sub->add_flag("--strict", o->strict, "soft scores below their threshold fail");
  sub->add_flag("--list", o->list, "list the cases and leave");
  sub->add_flag("--self-test", o->self_test, "sabotage every case and demand that it goes red");
}

Command Choose(const CLI::App* sub, Raw* raw) {
  const std::string& name = sub->get_name();
  if (name == "serve") return raw->serve;
  if (name == "up") return UpCommand{raw->up};
  if (name == "down") return DownCommand{};
  if (name == "run") return raw->run;
  if (name == "code") return raw->code;
  if (name == "exec") return raw->exec;
  if (name == "ps") return raw->ps;
  if (name == "logs") return raw->logs;
  if (name == "cp") return raw->cp;
  if (name == "stop") return raw->stop;
  if (name == "rm") return raw->rm;
  if (name == "inspect") return raw->inspect;
  if (name == "forward") {
    std::tie(raw->forward.port, raw->forward.local) = *ParseForward(raw->forward_port);
    return raw->forward;
  }
  if (name == "agent") return raw->agent;
  if (name == "eval") return raw->eval;
  if (name == "claude-worker") return raw->claude_worker;
  if (name == "mcp") return raw->mcp;
  if (name == "token") return TokenCommand{};
  if (name == "skill") return SkillCommand{};
  if (name == "env") return EnvCommand{};
  if (name == "doctor") return raw->doctor;
  if (name == "net") {
    raw->net.verb = sub->get_subcommands().front()->get_name();
    return raw->net;
  }
  if (name == "image") {
    raw->image.verb = sub->get_subcommands().front()->get_name();
    return raw->image;
  }
  return VersionCommand{};
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Words after "--" (or after the first word that is no option of ours) are the command to run in the sandbox.
Parsed Usage(const std::string& what, const char* fix) {
  std::fprintf(stderr, "sandbar: %s\n  fix: %s\n", what.c_str(), fix);
  return {std::nullopt, 2};
}

}  // namespace

std::optional<int64_t> ParseDuration(const std::string& text) {
  int64_t value = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || value <= 0 || value > 100'000'000) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (unit == "ms") return value;
  if (unit.empty() || unit == "s") return value * 1000;
  if (unit == "m") return value * 60'000;
  if (unit == "h") return value * 3'600'000;
  return std::nullopt;
}

namespace {

// A background server changes its directory: what the user typed is relative to where they typed it.
void MakeAbsolute(std::string* path) {
  std::error_code ec;
  auto absolute = std::filesystem::absolute(*path, ec);
  if (!path->empty() && !ec) *path = absolute.lexically_normal().string();
}

// CLI11 says only that a subcommand is required; people want to know which word was wrong.
std::string UnknownCommand(const CLI::App& app, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--data") ++i;  // and its value
    if (i >= words.size() || words[i].starts_with('-')) continue;
    for (const auto* sub : app.get_subcommands(nullptr))
      if (sub->get_name() == words[i]) return {};
    return words[i];
  }
  return {};
}

}  // namespace

Parsed Parse(int argc, const char* const* argv) {
  // CLI11 would take options of the inner command for ours, so the two halves are parted first.
  std::vector<std::string> words, inner;
  bool parted = false;
  for (int i = 1; i < argc; ++i) {
    if (!parted && std::string_view(argv[i]) == "--") {
      parted = true;
      continue;
    }
    (parted ? inner : words).emplace_back(argv[i]);
  }

  Raw raw;
  CLI::App app{"Sandbar: disposable Linux machines for code that nobody has reviewed", "sandbar"};
  app.require_subcommand(1);
  AddCommon(&app, &raw);
  app.footer("Environment: SANDBAR_URL, SANDBAR_TOKEN, SANDBAR_DATA, NO_COLOR. Documentation: docs/operations.md");
  AddServer(&app, &raw);
  AddSandboxes(&app, &raw);
  AddCode(&app, &raw);
  AddNet(&app, &raw);
  AddAgent(&app, &raw);
  AddClaudeWorker(&app, &raw);
  AddEval(&app, &raw);
  AddMcp(&app, &raw);
  for (auto* sub : app.get_subcommands(nullptr)) {
    // With fall-through the first foreign word of `run` and `exec` would not end the options: they get copies instead.
    if (sub->get_prefix_command()) {
      AddCommon(sub, &raw);
    } else {
      sub->fallthrough();
    }
  }
  if (!words.empty() && words[0] == "help") words[0] = "--help";
  if (!words.empty() && (words[0] == "--version" || words[0] == "-v")) words[0] = "version";
  if (auto unknown = UnknownCommand(app, words); !unknown.empty())
    return Usage("there is no command '" + unknown + "'", "sandbar --help lists them");
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    app.parse(reversed);
  } catch (const CLI::ParseError& e) {
    int code = app.exit(e);
    return {std::nullopt, code == 0 ? 0 : 2};
  }

  const CLI::App* sub = app.get_subcommands().front();
  auto rest = sub->remaining();
  if (!rest.empty() && rest.front().starts_with('-'))
    return Usage("'" + rest.front() + "' is no option of " + sub->get_name(),
                 ("sandbar " + sub->get_name() + " --help   # options of the inner command go after --").c_str());
  rest.insert(rest.end(), inner.begin(), inner.end());
  raw.run.argv = rest;
  raw.exec.argv = rest;
  if (!raw.run_timeout.empty()) raw.run.timeout_ms = ParseDuration(raw.run_timeout);
  if (!raw.worker_timeout.empty()) raw.claude_worker.options.timeout_ms = *ParseDuration(raw.worker_timeout);
  if (!raw.worker_idle.empty()) raw.claude_worker.options.max_idle_ms = *ParseDuration(raw.worker_idle);
  if (!raw.agent_timeout.empty()) raw.agent.options.limits.timeout_ms = *ParseDuration(raw.agent_timeout);
  if (raw.agent.options.model.empty()) raw.agent.options.model = Environment("SANDBAR_MODEL");
  if (sub->get_name() == "agent" && raw.agent.options.model.empty())
    return Usage("no model given", "sandbar agent --model anthropic:ID … (or set SANDBAR_MODEL)");
  if (!raw.exec_timeout.empty()) raw.exec.timeout_ms = ParseDuration(raw.exec_timeout);
  bool wants_command = sub->get_name() == "run" || sub->get_name() == "exec";
  if (wants_command && rest.empty())
    return Usage("no command given", sub->get_name() == "run" ? "sandbar run -- node -e 'console.log(6*7)'"
                                                              : "sandbar exec NAME -- ls -la");
  if (!wants_command && !rest.empty())
    return Usage("unexpected argument '" + rest.front() + "'", ("sandbar " + sub->get_name() + " --help").c_str());
  if (raw.run.image && raw.run.runtime) return Usage("--image and --runtime exclude each other", "give one of them");

  if (!raw.code_timeout.empty()) raw.code.timeout_ms = ParseDuration(raw.code_timeout);
  if (sub->get_name() == "code") {
    auto wrong = ArrangeCode(&raw.code, raw.code_words);
    if (!wrong.empty()) return Usage(wrong, "sandbar code [NAME] FILE, or sandbar code [NAME] -c 'print(6 * 7)'");
  }

  raw.options.data_given = !raw.options.data.empty();
  if (!raw.options.data_given) raw.options.data = Environment("SANDBAR_DATA");
  raw.options.data_given = !raw.options.data.empty();
  if (!raw.options.data_given) raw.options.data = kDefaultData;
  MakeAbsolute(&raw.options.data);
  for (ServeCommand* serve : {&raw.serve, &raw.up})
    for (auto* path : {&serve->config, &serve->images, &serve->tls_cert, &serve->tls_key})
      if (*path) MakeAbsolute(&**path);
  raw.options.command = Choose(sub, &raw);
  return {std::move(raw.options), 0};
}

}  // namespace sandbar::cli
