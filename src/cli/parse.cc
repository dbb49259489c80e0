#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <tuple>

#include "base/duration.h"
#include "base/engine_table.h"
#include "cli/called.h"
#include "cli/output.h"
#include "cli/parse_raw.h"
#include "wire/text.h"

namespace sandbar::cli {

std::string CheckDuration(const std::string& text) {
  return ParseDuration(text) ? std::string() : "'" + text + "' is no duration; write 90s, 5m, 2h or 30d";
}

namespace {

// "namespaces, gvisor or microvm".
std::string EngineNames() {
  std::string out;
  for (size_t i = 0; i < kEngines.size(); ++i) {
    if (i > 0) out += i + 1 < kEngines.size() ? ", " : " or ";
    out += kEngines[i]->name;
  }
  return out;
}

}  // namespace

void AddIsolation(CLI::App* sub, IsolationOptions* isolation) {
  sub->add_option("--isolation", isolation->engine, "engine: " + EngineNames());
  sub->add_option("--min-class", isolation->min_class, "at least this class: 1 namespaces, 2 gVisor, 3 microVM")
      ->check(CLI::Range(1, 3));
}

void AddNesting(CLI::App* sub, IsolationOptions* isolation) {
  sub->add_flag("--nesting", isolation->nesting,
                "allow podman or docker inside; a class 1 sandbox then counts as class 0 (docs/engines.md)");
}

namespace {

void AddServeFlags(CLI::App* sub, ServeCommand* c) {
  sub->add_option("--listen", c->listen, "HOST:PORT to listen on (default 127.0.0.1:8787; port 0 picks one)");
  sub->add_option("--config", c->config, "TOML file (docs/operations.md)");
  sub->add_option("--images", c->images, "directory of prepared images (default /var/cache/sandbar/images)");
  sub->add_option("--tls-cert", c->tls_cert, "certificate chain (PEM); with --tls-key the server speaks HTTPS");
  sub->add_option("--tls-key", c->tls_key, "private key (PEM)");
  sub->add_option("--isolation", c->isolation, "engine for sandboxes that do not ask for one (default auto)")
      ->check(CLI::IsMember(EngineChoices()));
  sub->add_flag("--insecure-http", c->insecure_http, "allow plain HTTP on an address that is not loopback");
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
  app->add_option(
      "--data", raw->options.data,
      "data directory of a server on this machine; wins over SANDBAR_URL (default /var/lib/sandbar; SANDBAR_DATA)");
  app->add_flag("--json", raw->options.json, "machine-readable output");
}

void AddServer(CLI::App* app, Raw* raw) {
  auto* serve = app->add_subcommand("serve", "Run the server in the foreground (root; drops its privileges)");
  AddServeFlags(serve, &raw->serve);
  serve->add_flag("--ephemeral", raw->serve.ephemeral, "stop every machine when the server exits");
  serve->add_option("--ready-fd", raw->serve.ready_fd)->group("");
  serve->add_option("--lifeline-fd", raw->serve.lifeline_fd)->group("");
  AddServeFlags(app->add_subcommand("up", "Start the server in the background and wait until it answers"), &raw->up);
  auto* restart = app->add_subcommand("restart",
                                      "Stop the server and start it again, with other options if any are given; "
                                      "sandboxes go on");
  AddServeFlags(restart, &raw->restart);
  app->add_subcommand("down", "Stop every sandbox and the server");
  app->add_subcommand("token", "Print the server's first API key; `key` makes others");
  app->add_subcommand("skill", "Print a short guide for coding agents");
  auto* env =
      app->add_subcommand("env", "Point the Vercel SDK here: eval \"$(sandbar env)\", or sandbar env -- pnpm dev");
  env->add_flag("--no-aliases", raw->env_no_aliases, "accept the SDK's own spellings only and warn about others");
  env->add_option("--default-net", raw->env.default_net, "network of sandboxes created without a network policy")
      ->check(CLI::IsMember({"deny-all", "allow-all"}));
  env->add_option("--write", raw->env.write, "put the variables into this .env file; its other lines stay");
  app->add_subcommand("version", "Print the version");
  auto* doctor = app->add_subcommand("doctor", "Check what this machine offers, with a fix for what is missing");
  doctor->add_option("--listen", raw->doctor.listen);
  doctor->add_option("--images", raw->doctor.images);
  auto* image = app->add_subcommand("image", "List, build and remove images");
  image->require_subcommand(1);
  image->add_option("--images", raw->image.images, "directory of prepared images");
  image->add_subcommand("ls", "List the prepared images");
  image->add_subcommand("build", "Prepare images: universal node24 node22 python3.13 bun data podman docker")
      ->add_option("NAME", raw->image.names)
      ->required();
  image->add_subcommand("rm", "Remove images")->add_option("NAME", raw->image.names)->required();
  for (auto* sub : image->get_subcommands(nullptr)) sub->fallthrough();
  auto* kernel = app->add_subcommand("kernel", "The guest kernel of microVMs: list, make, replace");
  kernel->require_subcommand(1);
  kernel->add_option("--dir", raw->kernel.dir, "where it is kept (default: kernel/ beside the images)");
  kernel->add_subcommand("ls", "List the kernel in use and kernels built earlier");
  kernel->add_subcommand("cloud", "Take Debian's cloud kernel: nothing is built")->add_option("DEB", raw->kernel.file);
  kernel->add_subcommand("build", "Build a minimal one from Debian's linux-source-6.1 (minutes; kept)");
  kernel->add_subcommand("use", "Use this kernel file")->add_option("FILE", raw->kernel.file)->required();
  for (auto* sub : kernel->get_subcommands(nullptr)) sub->fallthrough();
}

void AddSandboxes(CLI::App* app, Raw* raw) {
  auto* ps = app->add_subcommand("ps", "List sandboxes");
  ps->add_flag("-a,--all", raw->ps.all, "stopped ones too");
  auto* logs = app->add_subcommand("logs", "Output of a command; without one, list the commands");
  logs->add_option("NAME", raw->logs.name)->required();
  logs->add_option("COMMAND", raw->logs.command);
  logs->add_flag("-f,--follow", raw->logs.follow, "go on until the command ends");
  auto* cp = app->add_subcommand(
      "cp", "Copy files and directories in or out: NAME:PATH is the sandbox's side, DIR/. what is in DIR");
  cp->add_option("SRC", raw->cp.from)->required();
  cp->add_option("DST", raw->cp.to)->required();
  auto* forward = app->add_subcommand("forward", "Reach a port of a sandbox on this machine, until Ctrl-C");
  forward->add_option("NAME", raw->forward.name)->required();
  forward->add_option("PORT[:LOCAL]", raw->forward_port, "LOCAL: the port here (default: the same; 0: any free one)")
      ->check(CheckForward)
      ->required();
  app->add_subcommand("stop", "Stop sandboxes")->add_option("NAME", raw->stop.names)->required();
  app->add_subcommand("rm", "Stop and delete sandboxes and their automatic snapshots; snapshots you made stay")
      ->add_option("NAME", raw->rm.names)
      ->required();
  app->add_subcommand("snapshot",
                      "Stop a sandbox and keep its files: NAME; list: ls [NAME]; check: verify [ID…]; delete: "
                      "rm ID…")
      ->add_option("NAME|ls|rm", raw->snapshot.words)
      ->required();
  auto* fork = app->add_subcommand("fork", "A new sandbox from the newest snapshot of another");
  fork->add_option("NAME", raw->fork.name)->required();
  fork->add_option("NEW", raw->fork.as, "name of the new one");
  fork->add_flag("--live", raw->fork.live, "copy the running sandbox with its processes (microVMs)");
  AddIsolation(fork, &raw->fork.isolation);
  AddNesting(fork, &raw->fork.isolation);
  app->add_subcommand("pause", "Stop sandboxes with their memory: resume goes on with their processes (microVMs)")
      ->add_option("NAME", raw->pause.names)
      ->required();
  auto* resume = app->add_subcommand("resume", "Start stopped sandboxes again");
  resume->add_option("NAME", raw->resume.names)->required();
  auto* memory = resume->add_flag("--memory", raw->resume.memory, "continue the paused processes, or fail");
  resume->add_flag("--disk", raw->resume.disk, "from the files alone")->excludes(memory);
  app->add_subcommand("usage", "CPU, memory, creations and transfer per project, with what they cost");
  app->add_subcommand("inspect", "Everything known about a sandbox, as JSON")
      ->add_option("NAME", raw->inspect.name)
      ->required();
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

void AddCompare(CLI::App* app, Raw* raw) {
  auto* diff = app->add_subcommand("diff", "Files that differ between two sandboxes or snapshots, or from an image");
  diff->add_option("A", raw->diff.a, "name or snapshot id")->required();
  diff->add_option("B", raw->diff.b, "name or snapshot id");
  auto* promote = app->add_subcommand("promote", "Make a fork's state the new state of the sandbox it came from");
  promote->add_option("FORK", raw->promote.name)->required();
  promote->add_option("--into", raw->promote.into, "another sandbox than the one it was forked from");
  auto* to = app->add_subcommand("export", "Write a stopped sandbox to a file, without variables and network rules");
  to->add_option("NAME", raw->export_.name)->required();
  to->add_option("FILE", raw->export_.file, "e.g. box.tar.zst")->required();
  auto* from =
      app->add_subcommand("import", "Create a sandbox from an exported file; only flags grant ports, nesting, cpus");
  from->add_option("FILE", raw->import_.file)->required();
  from->add_option("--name", raw->import_.name, "another name than it had");
  AddIsolation(from, &raw->import_.isolation);
  AddNesting(from, &raw->import_.isolation);
  from->add_option("-p,--publish", raw->import_.ports, "a port that gets a URL (default none, whatever the file says)")
      ->take_all()
      ->allow_extra_args(false)
      ->check(CLI::Range(2, 65535));
  from->add_option("--vcpus", raw->import_.vcpus, "1 or an even number");
  from->add_option("--timeout", raw->import_timeout,
                   "life of a session, e.g. 90s, 5m (default: the file's, 1h at most)")
      ->check(CheckDuration);
  from->add_option("--max-size", raw->import_.max_size, "bytes that its files may have unpacked, e.g. 8G")
      ->transform(CLI::AsSizeValue(false));
  auto* race = app->add_subcommand("race", "Run a command in N forks at once, keep the best: race NAME -n 4 -- make");
  race->add_option("NAME", raw->race.name)->required();
  race->add_option("-n,--count", raw->race.count, "how many forks (default 2)");
  race->add_option("--score", raw->race.score,
                   "exit (default: first to exit with 0), or a pattern for a number in a line of stdout");
  race->add_option("--best", raw->race.best, "highest (default) or lowest number")
      ->check(CLI::IsMember({"highest", "lowest"}));
  race->add_option("--keep", raw->race.keep, "promote (default), fork or none")
      ->check(CLI::IsMember({"promote", "fork", "none"}));
  race->prefix_command();
}

Command Choose(const CLI::App* sub, Raw* raw) {
  const std::string& name = sub->get_name();
  if (name == "serve") return raw->serve;
  if (name == "up") return UpCommand{raw->up};
  if (name == "restart") return RestartCommand{raw->restart};
  if (name == "down") return DownCommand{};
  if (name == "run") return raw->run;
  if (name == "code") return raw->code;
  if (name == "exec") return raw->exec;
  if (name == "sh") return ChooseSh(raw->sh);
  if (name == "attach") return raw->attach;
  if (name == "ps") return raw->ps;
  if (name == "logs") return raw->logs;
  if (name == "cp") return raw->cp;
  if (name == "stop") return raw->stop;
  if (name == "rm") return raw->rm;
  if (name == "inspect") return raw->inspect;
  if (name == "snapshot") return raw->snapshot;
  if (name == "fork") return raw->fork;
  if (name == "pause") return raw->pause;
  if (name == "resume") return raw->resume;
  if (name == "usage") return UsageCommand{};
  if (name == "forward") {
    std::tie(raw->forward.port, raw->forward.local) = *ParseForward(raw->forward_port);
    return raw->forward;
  }
  if (name == "agent") return raw->agent;
  if (name == "claude-worker") return raw->claude_worker;
  if (name == "eval") return raw->eval;
  if (name == "mcp") return raw->mcp;
  if (name == "token") return TokenCommand{};
  if (name == "key") {
    raw->key.verb = sub->get_subcommands().front()->get_name();
    return raw->key;
  }
  if (name == "login") {
    raw->login.verb = sub->get_subcommands().front()->get_name();
    return raw->login;
  }
  if (name == "skill") return SkillCommand{};
  if (name == "env") return raw->env;
  if (name == "doctor") return raw->doctor;
  if (name == "diff") return raw->diff;
  if (name == "promote") return raw->promote;
  if (name == "race") return raw->race;
  if (name == "export") return raw->export_;
  if (name == "import") return raw->import_;
  if (name == "net") {
    raw->net.verb = sub->get_subcommands().front()->get_name();
    return raw->net;
  }
  if (name == "kernel") {
    raw->kernel.verb = sub->get_subcommands().front()->get_name();
    return raw->kernel;
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
Parsed Usage(const std::string& what, const std::string& fix, bool as_json) {
  Complain(FailWithFix(Code::kBadRequest, what, fix).error(), as_json);
  return {std::nullopt, 2};
}

// A background server changes its directory: what the user typed is relative to where they typed it.
void MakeAbsolute(std::string* path) {
  std::error_code ec;
  auto absolute = std::filesystem::absolute(*path, ec);
  if (!path->empty() && !ec) *path = absolute.lexically_normal().string();
}

// What other programs call it.
std::string_view OurWord(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"shell", "sh"},  {"ssh", "sh"},        {"connect", "sh"}, {"ls", "ps"},     {"list", "ps"},      {"list", "ls"},
      {"delete", "rm"}, {"delete", "revoke"}, {"rm", "revoke"},  {"remove", "rm"}, {"remove", "revoke"}};
  for (const auto& [theirs, ours] : kWords)
    if (theirs == word && std::ranges::find(known, ours) != known.end()) return ours;
  return wire::Nearest(word, known);
}

// CLI11 says only that a subcommand is required; people want to know which word was wrong.
std::string UnknownCommand(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const auto* sub : app.get_subcommands(nullptr)) known.push_back(sub->get_name());
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--data") ++i;  // and its value
    if (i >= words.size() || words[i].starts_with('-')) continue;
    if (std::ranges::find(known, words[i]) != known.end()) {
      const auto* sub = app.get_subcommand(words[i]);
      // The value of an option in between could be any word.
      const bool next = i + 1 < words.size() && !words[i + 1].starts_with('-');
      if (sub->get_require_subcommand_min() == 0 || !next) return {};
      return UnknownCommand(*sub, {words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end()});
    }
    const std::string_view near = OurWord(words[i], known);
    return "there is no command '" + words[i] + "'" +
           (near.empty() ? "" : ", did you mean '" + std::string(near) + "'?");
  }
  return {};
}

}  // namespace

Parsed Parse(int argc, const char* const* argv) {
  // CLI11 would take options of the inner command for ours, so the two halves are parted first.
  if (argc > 0) SetCalledAs(argv[0]);
  std::vector<std::string> words, inner;
  bool parted = false;
  for (int i = 1; i < argc; ++i) {
    if (!parted && std::string_view(argv[i]) == "--") {
      parted = true;
      continue;
    }
    (parted ? inner : words).emplace_back(argv[i]);
  }

  const bool as_json = std::ranges::find(words, "--json") != words.end();
  Raw raw;
  CLI::App app{"Sandbar: disposable Linux machines for code that nobody has reviewed", "sandbar"};
  app.require_subcommand(1);
  AddCommon(&app, &raw);
  app.footer("Environment: SANDBAR_URL, SANDBAR_TOKEN, SANDBAR_DATA, NO_COLOR. Documentation: docs/operations.md");
  AddServer(&app, &raw);
  AddCommands(&app, &raw);
  AddKey(&app, &raw);
  AddLogin(&app, &raw);
  AddSandboxes(&app, &raw);
  AddCode(&app, &raw);
  AddNet(&app, &raw);
  AddCompare(&app, &raw);
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
    return Usage(unknown, "sandbar --help lists them", as_json);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    app.parse(reversed);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return {std::nullopt, app.exit(e)};  // --help
    const auto chosen = app.get_subcommands();
    return Usage(e.what(), "sandbar " + (chosen.empty() ? "" : chosen.front()->get_name() + " ") + "--help", as_json);
  }

  const CLI::App* sub = app.get_subcommands().front();
  auto rest = sub->remaining();
  if (!rest.empty() && rest.front().starts_with('-'))
    return Usage("'" + rest.front() + "' is no option of " + sub->get_name(),
                 "sandbar " + sub->get_name() + " --help   # options of the inner command go after --", as_json);
  rest.insert(rest.end(), inner.begin(), inner.end());
  raw.run.argv = rest;
  raw.exec.argv = rest;
  raw.race.argv = rest;
  raw.env.argv = rest;
  raw.env.aliases = !raw.env_no_aliases;
  if (!raw.import_timeout.empty()) raw.import_.timeout_ms = ParseDuration(raw.import_timeout);
  raw.agent.options.engine = raw.agent_isolation.engine;
  raw.agent.options.min_class = raw.agent_isolation.min_class;
  raw.eval.options.engine = raw.eval_isolation.engine;
  raw.eval.options.min_class = raw.eval_isolation.min_class;
  if (!raw.agent_timeout.empty()) raw.agent.options.limits.timeout_ms = *ParseDuration(raw.agent_timeout);
  if (raw.agent.options.model.empty()) raw.agent.options.model = Environment("SANDBAR_MODEL");
  if (sub->get_name() == "agent" && raw.agent.options.model.empty())
    return Usage("no model given", "sandbar agent --model anthropic:ID … (or set SANDBAR_MODEL)", as_json);
  if (!raw.worker_timeout.empty()) raw.claude_worker.options.timeout_ms = *ParseDuration(raw.worker_timeout);
  if (!raw.worker_idle.empty()) raw.claude_worker.options.max_idle_ms = *ParseDuration(raw.worker_idle);
  const bool wants_command = sub->get_prefix_command();
  if (sub->get_name() == "race" && rest.empty())
    return Usage("no command given", "sandbar race NAME -n 4 -- make", as_json);
  if (auto wrong = ArrangeCommands(sub, &raw); !wrong.empty())
    return Usage(wrong, "sandbar " + sub->get_name() + " --help", as_json);
  if (sub->get_name() == "env" && !inner.empty() && raw.env.write)
    return Usage("--write and a program exclude each other",
                 "first sandbar env --write FILE, then sandbar env -- PROGRAM", as_json);
  if (!wants_command && !rest.empty() && (sub->get_name() != "env" || inner.empty()))
    return Usage("unexpected argument '" + rest.front() + "'", "sandbar " + sub->get_name() + " --help", as_json);
  for (const RunCommand* made : {&raw.run, &raw.sh.fresh}) {
    if (made->from && (made->image || made->runtime))
      return Usage("--from brings its own image", "leave --image and --runtime out", as_json);
    if (made->image && made->runtime)
      return Usage("--image and --runtime exclude each other", "give one of them", as_json);
  }

  if (!raw.code_timeout.empty()) raw.code.timeout_ms = ParseDuration(raw.code_timeout);
  if (sub->get_name() == "code") {
    auto wrong = ArrangeCode(&raw.code, raw.code_words);
    if (!wrong.empty())
      return Usage(wrong, "sandbar code [NAME] FILE, or sandbar code [NAME] -c 'print(6 * 7)'", as_json);
  }

  raw.options.data_given = !raw.options.data.empty();
  if (!raw.options.data_given) raw.options.data = Environment("SANDBAR_DATA");
  if (raw.options.data.empty()) raw.options.data = kDefaultData;
  MakeAbsolute(&raw.options.data);
  for (ServeCommand* serve : {&raw.serve, &raw.up, &raw.restart})
    for (auto* path : {&serve->config, &serve->images, &serve->tls_cert, &serve->tls_key})
      if (*path) MakeAbsolute(&**path);
  raw.options.command = Choose(sub, &raw);
  return {std::move(raw.options), 0};
}

}  // namespace sandbar::cli
