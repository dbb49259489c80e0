// The command line of run, exec, sh and attach.
#include <cstdlib>

#include "base/duration.h"
#include "cli/parse_raw.h"

namespace sandbar::cli {
namespace {

// NAME=VALUE, or NAME alone, which takes the value of that variable here: a value on the command line is in the process
// list, where every user of this machine can read it.
std::string CheckEnv(const std::string& text) {
  const size_t at = text.find('=');
  if (at == 0 || text.empty()) return "'" + text + "' is not NAME=VALUE or NAME";
  if (at == std::string::npos && std::getenv(text.c_str()) == nullptr)
    return "the variable " + text + " is not set here; set it, or write " + text + "=VALUE";
  return {};
}

void AddEnv(CLI::App* sub, std::vector<std::string>* env) {
  sub->add_option("-e,--env", *env, "NAME=VALUE; or NAME, to pass your own variable hidden from process lists")
      ->check(CheckEnv)
      ->take_all()
      ->allow_extra_args(false);
}

void TakeValuesFromHere(std::vector<std::string>* env) {
  for (std::string& pair : *env) {
    const char* value = pair.find('=') == std::string::npos ? std::getenv(pair.c_str()) : nullptr;
    if (value != nullptr) pair += "=" + std::string(value);
  }
}

// The sandbox that `run` or `sh` makes.
void AddFresh(CLI::App* sub, RunCommand* run, std::string* timeout) {
  sub->add_option("--image", run->image, "image (default: the server's, vercel/sandbox/universal)");
  sub->add_option("--runtime", run->runtime, "or a runtime of the older API: node24, node22, python3.13, bun");
  auto* net = sub->add_option("--net", run->network, "deny-all (default) or allow-all")
                  ->check(CLI::IsMember({"deny-all", "allow-all"}));
  auto* allow = sub->add_option("--allow", run->allow, "a domain it may reach, e.g. example.com or *.example.com")
                    ->take_all()
                    ->allow_extra_args(false)
                    ->excludes(net);
  sub->add_option("--policy", run->policy, "network policy, a JSON file in the SDK's form")
      ->excludes(net)
      ->excludes(allow);
  sub->add_option("--timeout", *timeout, "life of the sandbox, e.g. 90s, 5m (default 1h)")->check(CheckDuration);
  AddIsolation(sub, &run->isolation);
  AddNesting(sub, &run->isolation);
  sub->add_option("--vcpus", run->vcpus, "1 or an even number");
  sub->add_option("--name", run->name, "name of the sandbox");
  sub->add_option("--from", run->from, "snapshot to start from, instead of an image");
}

void AddIo(CLI::App* sub, IoOptions* io) {
  auto* input = sub->add_flag("-i,--interactive", io->interactive,
                              "pass standard input on, also from a terminal (pipes and files are passed on anyway)");
  sub->add_flag("-t,--tty", io->terminal, "give the command a terminal of this window's size; Ctrl-P Ctrl-Q leaves it");
  sub->add_flag("-n,--no-stdin", io->no_input, "pass nothing on: the command reads an empty input")->excludes(input);
}

void AddWhere(CLI::App* sub, std::vector<std::string>* env, std::optional<std::string>* cwd, bool* sudo) {
  AddEnv(sub, env);
  sub->add_option("-w,--cwd", *cwd, "working directory");
  sub->add_flag("--sudo", *sudo, "run as root of the sandbox");
}

}  // namespace

void AddCommands(CLI::App* app, Raw* raw) {
  auto* run = app->add_subcommand(
      "run", "Run one command in a fresh sandbox: sandbar run -- node -e 1; without a command, a shell");
  AddFresh(run, &raw->run, &raw->run_timeout);
  AddWhere(run, &raw->run.env, &raw->run.cwd, &raw->run.sudo);
  AddIo(run, &raw->run.io);
  run->add_flag("--keep", raw->run.keep, "keep the sandbox afterwards, running");
  run->add_flag("--persistent", raw->run.persistent, "keep the sandbox afterwards, stopped: its files are a snapshot")
      ->excludes("--keep");
  run->prefix_command();
  auto* exec =
      app->add_subcommand("exec", "Run a command in a sandbox: sandbar exec NAME -- ls -la; without one, a shell");
  exec->add_option("NAME", raw->exec.name)->required();
  AddWhere(exec, &raw->exec.env, &raw->exec.cwd, &raw->exec.sudo);
  AddIo(exec, &raw->exec.io);
  exec->add_option("--timeout", raw->exec_timeout, "kill the command after this")->check(CheckDuration);
  exec->add_flag("-k,--kill", raw->exec.kill, "the second Ctrl-C ends the command too (without: it goes on)");
  exec->add_flag("-d,--detach", raw->exec.detach, "do not wait; prints the command's id");
  exec->prefix_command();
  auto* sh = app->add_subcommand(
      "sh", "A shell in a sandbox; without NAME in a new one, which is kept, running (--rm: removed at exit)");
  sh->add_option("NAME", raw->sh.name);
  sh->add_flag("--rm", raw->sh.remove, "remove the new sandbox at exit");
  AddFresh(sh, &raw->sh.fresh, &raw->sh_timeout);
  AddWhere(sh, &raw->sh.fresh.env, &raw->sh.fresh.cwd, &raw->sh.fresh.sudo);
  auto* attach = app->add_subcommand(
      "attach", "Join a command that runs, its terminal if it has one; without COMMAND the newest. Several may watch");
  attach->add_option("NAME", raw->attach.name)->required();
  attach->add_option("COMMAND", raw->attach.command, "id of the command: sandbar logs NAME lists them");
  auto* input = attach->add_flag("-i,--interactive", raw->attach.io.interactive,
                                 "pass standard input on to a command without a terminal");
  attach->add_flag("-n,--no-stdin", raw->attach.io.no_input, "watch only")->excludes(input);
}

std::string ArrangeCommands(const CLI::App* sub, Raw* raw) {
  for (auto* env : {&raw->run.env, &raw->exec.env, &raw->sh.fresh.env}) TakeValuesFromHere(env);
  if (!raw->run_timeout.empty()) raw->run.timeout_ms = ParseDuration(raw->run_timeout);
  if (!raw->sh_timeout.empty()) raw->sh.fresh.timeout_ms = ParseDuration(raw->sh_timeout);
  if (!raw->exec_timeout.empty()) raw->exec.timeout_ms = ParseDuration(raw->exec_timeout);
  if (sub->get_name() == "exec" && raw->exec.detach && raw->exec.argv.empty() && !raw->exec.io.terminal)
    return "no command given";
  if (sub->get_name() != "sh" || raw->sh.name.empty()) return {};
  for (const char* option : {"--rm", "--image", "--runtime", "--net", "--allow", "--policy", "--timeout", "--isolation",
                             "--min-class", "--nesting", "--vcpus", "--name", "--from"})
    if (sub->count(option) > 0) return std::string(option) + " is for a new sandbox, and " + raw->sh.name + " is given";
  return {};
}

Command ChooseSh(const ShCommand& sh) {
  if (sh.name.empty()) {
    RunCommand run = sh.fresh;
    run.is_sh = true;
    run.keep = !sh.remove;
    return run;
  }
  ExecCommand exec;
  exec.name = sh.name;
  exec.env = sh.fresh.env;
  exec.cwd = sh.fresh.cwd;
  exec.sudo = sh.fresh.sudo;
  return exec;
}

}  // namespace sandbar::cli
