// The command line of code, mcp, agent, claude-worker and eval.
#include <filesystem>

#include "cli/parse_raw.h"

namespace sandbar::cli {
namespace {

void AddLimits(CLI::App* sub, llm::Limits* limits, std::string* timeout) {
  sub->add_option("--max-steps", limits->max_steps, "replies of the model (default 20)")->check(CLI::Range(1, 10'000));
  sub->add_option("--max-tokens", limits->max_tokens, "tokens in and out together")->check(CLI::PositiveNumber);
  sub->add_option("--timeout", *timeout, "longest time of the run, e.g. 90s, 5m (default 10m)")->check(CheckDuration);
}

}  // namespace

void AddMcp(CLI::App* app, Raw* raw) {
  auto* mcp = app->add_subcommand("mcp", "Serve MCP on standard input and output, for agents (docs/mcp.md)");
  mcp->add_option("--sandbox", raw->mcp.sandbox,
                  "use this sandbox and keep it (default: a fresh one, deleted at the end)");
  mcp->add_flag("--admin-tools", raw->mcp.admin_tools, "the model also gets snapshot, fork and network");
  auto* image = mcp->add_option("--image", raw->mcp.image, "image of a fresh sandbox, e.g. vercel/sandbox/universal");
  mcp->add_option("--runtime", raw->mcp.runtime, "or its runtime: node24, node22, python3.13, bun")->excludes(image);
  auto* engine = mcp->add_option("--isolation", raw->mcp.isolation, "its engine, e.g. gvisor");
  mcp->add_option("--min-class", raw->mcp.isolation, "at least this class: 1, 2 or 3")
      ->check(CLI::Range(1, 3))
      ->excludes(engine);
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
  AddIsolation(code, &raw->code.isolation);
}

std::string ArrangeCode(CodeCommand* code, const std::vector<std::string>& words) {
  if (words.size() > (code->code ? 1U : 2U)) return "too many words";
  if (!code->code && words.empty()) return "no code given";
  if (code->code ? !words.empty() : words.size() == 2) code->name = words.front();
  if (!code->code) code->file = words.back();
  if (code->name.empty() && code->context) return "--context needs the NAME of a sandbox";
  if (!code->name.empty() && (code->image || code->runtime)) return "--image and --runtime are for a fresh sandbox";
  if (!code->name.empty() && (code->isolation.engine || code->isolation.min_class))
    return "--isolation and --min-class are for a fresh sandbox";
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

void AddAgent(CLI::App* app, Raw* raw) {
  llm::RunOptions* o = &raw->agent.options;
  auto* sub = app->add_subcommand("agent", "Let a model work on a task in a fresh sandbox: sandbar agent \"…\"");
  sub->add_option("PROMPT", o->prompt, "the task")->required();
  sub->add_option("--model", o->model, "anthropic:ID, openai:ID[@URL], scripted:FILE, replay:FILE (or SANDBAR_MODEL)");
  AddLimits(sub, &o->limits, &raw->agent_timeout);
  auto* image = sub->add_option("--image", o->image, "image, e.g. vercel/sandbox/universal");
  auto* runtime =
      sub->add_option("--runtime", o->runtime, "or its runtime: node24, node22, python3.13, bun")->excludes(image);
  auto* from = sub->add_option("--from", o->from, "a snapshot to start from")->excludes(image)->excludes(runtime);
  auto* net = sub->add_option("--net", o->net, "deny (default), allow or allow:host,host");
  AddIsolation(sub, &raw->agent_isolation);
  sub->add_option("--sandbox", o->sandbox, "use this existing sandbox and keep it")
      ->excludes(sub->get_option("--isolation"))
      ->excludes(sub->get_option("--min-class"))
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
  llm::ClaudeWorkerOptions* o = &raw->claude_worker.options;
  auto* sub =
      app->add_subcommand("claude-worker", "Run the tools of Claude's managed agents in sandboxes of this server");
  sub->add_option("--environment", o->environment, "id of the self-hosted environment (or ANTHROPIC_ENVIRONMENT_ID)");
  auto* image = sub->add_option("--image", o->image, "image of the sandboxes");
  auto* runtime =
      sub->add_option("--runtime", o->runtime, "or its runtime: node24, node22, python3.13, bun")->excludes(image);
  sub->add_option("--from", o->from, "a snapshot to start from")->excludes(image)->excludes(runtime);
  sub->add_option("--net", o->net, "deny (default), allow or allow:host,host");
  sub->add_option("--timeout", raw->worker_timeout, "longest life of a sandbox (default 1h)")->check(CheckDuration);
  sub->add_option("--max-idle", raw->worker_idle, "idle time before a stop (default 60s)")->check(CheckDuration);
  sub->add_flag("--once", o->once, "end when there is no work");
}

void AddEval(CLI::App* app, Raw* raw) {
  llm::EvalOptions* o = &raw->eval.options;
  auto* sub = app->add_subcommand("eval", "Run a directory of eval cases, each trial in a fresh fork");
  sub->add_option("DIR", o->path, "cases: .yaml and .mjs files (docs/evals.md)")->required();
  sub->add_option("--model", o->model, "for every case (default: each case's own)");
  sub->add_option("--trials", o->trials, "number of trials per case")->check(CLI::Range(1, 1000));
  sub->add_option("--max-concurrency", o->max_concurrency, "trials at a time (default 4)")->check(CLI::Range(1, 64));
  sub->add_option("--tag", o->tags, "only cases with this tag; several: any of them")
      ->take_all()
      ->allow_extra_args(false);
  AddIsolation(sub, &raw->eval_isolation);
  sub->add_option("--junit", o->junit, "report as JUnit XML");
  sub->add_option("--compare", o->compare, "table against an earlier run's --json output");
  auto* record = sub->add_option("--record", o->record, "directory for the transcripts");
  auto* replay = sub->add_option("--replay", o->replay, "directory of transcripts to take the replies from");
  replay->excludes(record)->excludes("--model");
  sub->add_flag("--strict", o->strict, "soft scores below their threshold fail");
  sub->add_flag("--list", o->list, "list the cases and leave");
  sub->add_flag("--self-test", o->self_test, "check that every case fails without work or with garbled results");
}

}  // namespace sandbar::cli
