#include "sandbox/code/session_contexts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/code/code_drivers.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

using std::chrono::milliseconds;

constexpr int kSigInt = 2;
constexpr int kSigKill = 9;
constexpr int kAborted = 128 + 6;
// How long an interrupted cell may take to end before its interpreter is killed, and the agent to say that it is dead.
constexpr milliseconds kInterruptGrace{5000};
constexpr milliseconds kInterruptAgain{500};
constexpr milliseconds kKillGrace{10000};
constexpr size_t kMaxEnvBytes = 64 << 10;

bool IsEnvName(std::string_view name) {
  auto letter = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  auto good = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && letter(name.front()) && std::ranges::all_of(name, good);
}

Result<> CheckEnv(const std::map<std::string, std::string>& env) {
  size_t bytes = 0;
  for (const auto& [name, value] : env) {
    if (!IsEnvName(name))
      return Fail(Code::kBadRequest, "env: names are letters, digits and _, not beginning with a digit: " + name);
    if (value.contains('\0')) return Fail(Code::kBadRequest, "env: the value of " + name + " contains NUL");
    bytes += name.size() + value.size();
  }
  if (bytes > kMaxEnvBytes) return Fail(Code::kTooLarge, fmt::format("env: at most {} bytes", kMaxEnvBytes));
  return {};
}

Result<> CheckCode(const CodeSpec& spec, const Config& config) {
  if (spec.code.size() > kMaxCodeBytes) {
    return Fail(Code::kTooLarge, fmt::format("code: {} bytes, the limit is {}; write it to a file and run that",
                                             spec.code.size(), kMaxCodeBytes));
  }
  if (spec.code.contains('\0')) return Fail(Code::kBadRequest, "code: contains NUL");
  if (spec.cwd) SB_TRYV(CheckPath("cwd", *spec.cwd));
  if (spec.timeout_ms && (*spec.timeout_ms < 1 || *spec.timeout_ms > config.max_timeout_ms))
    return Fail(Code::kBadRequest, fmt::format("timeoutMs: 1 to {}", config.max_timeout_ms));
  return CheckEnv(spec.env);
}

std::optional<CodeLanguage> LanguageNamed(std::string_view name) {
  for (CodeLanguage l :
       {CodeLanguage::kPython, CodeLanguage::kJavascript, CodeLanguage::kTypescript, CodeLanguage::kBash}) {
    if (CodeLanguageName(l) == name) return l;
  }
  return std::nullopt;
}

}  // namespace

Result<SessionContexts::ContextRef> SessionContexts::Find(const std::string& id) const {
  auto it = contexts_.find(id);
  if (it == contexts_.end()) {
    return Fail(Code::kNotFound,
                "no context " + id + " in this sandbox: contexts end with the session; make one, or leave it out");
  }
  return it->second;
}

Result<SessionContexts::ContextRef> SessionContexts::Make(std::string id, CodeContextSpec spec) {
  if (contexts_.size() >= kMaxContexts) {
    return Fail(Code::kTooMany,
                fmt::format("{} contexts are in this sandbox, which is the limit; delete one", contexts_.size()));
  }
  auto context = std::make_shared<CodeContext>();
  context->id = id;
  context->spec = std::move(spec);
  context->created_at = context->last_used_at = NowMs();
  contexts_[std::move(id)] = context;
  return context;
}

Result<SessionContexts::ContextRef> SessionContexts::Pick(const CodeSpec& spec) {
  if (!spec.context && !spec.language)
    return Fail(Code::kBadRequest, "language: is required (python, javascript, typescript or bash)");
  const std::string id =
      spec.context.value_or(std::string(CodeLanguageName(spec.language.value_or(CodeLanguage::kPython))));
  ContextRef context;
  if (auto found = Find(id)) {
    context = *found;
  } else if (auto language = LanguageNamed(id)) {
    CodeContextSpec own;
    own.language = *language;
    SB_TRY(context, Make(id, std::move(own)));
  } else {
    return found;
  }
  if (spec.language && *spec.language != context->spec.language) {
    return Fail(Code::kBadRequest,
                fmt::format("language: context {} is of {}, not of {}", id, CodeLanguageName(context->spec.language),
                            CodeLanguageName(*spec.language)));
  }
  if (context->busy()) {
    return Fail(Code::kConflict,
                "context " + id + " is running something: wait for its end, interrupt it, or use another context");
  }
  return context;
}

SessionContexts::ContextRef SessionContexts::ContextOf(const std::string& command) const {
  if (!IsDriverId(command)) return nullptr;
  for (const auto& [id, context] : contexts_) {
    if (context->command == command) return context;
  }
  return nullptr;
}

Result<CodeContextInfo> SessionContexts::Add(CodeContextSpec spec) {
  SB_TRYV(state_->Usable());
  if (spec.cwd) SB_TRYV(CheckPath("cwd", *spec.cwd));
  SB_TRYV(CheckEnv(spec.env));
  SB_TRY(auto context, Make(NewId("ctx_", 12), std::move(spec)));
  return context->Info();
}

std::vector<CodeContextInfo> SessionContexts::List() const {
  std::vector<CodeContextInfo> out;
  for (const auto& [id, context] : contexts_) out.push_back(context->Info());
  std::ranges::sort(out, {}, &CodeContextInfo::created_at);
  return out;
}

Task<> SessionContexts::StartDriver(ContextRef context) {
  SB_CO_TRY(auto link, state_->Link());
  const std::string id = NewDriverId();
  CommandSpec spec;
  spec.cwd = context->spec.cwd;
  spec.env = context->spec.env;
  protocol::Exec request = state_->MakeExec(spec, id);
  AddDriver(context->spec.language, request);
  const std::string program = request.argv.front();
  // Known before it runs: its first words may come with the answer.
  context->Forget();
  context->command = id;
  auto executed = co_await WithTimeout(link->Exec(std::move(request)), state_->core->config.agent_timeout);
  if (executed) co_return Result<>{};
  if (context->command == id) context->Forget();
  Error error = std::move(executed).error();
  if (error.code == Code::kExecutableNotFound) {
    error.message = fmt::format(
        "this sandbox has no {}, which {} needs: use another language, or an image that has it (python3.13 and "
        "vercel/sandbox/universal have python)",
        program, CodeLanguageName(context->spec.language));
  }
  if (error.code == Code::kTimeout) error.code = Code::kUnavailable;
  co_return std::unexpected(std::move(error));
}

Task<std::shared_ptr<CodeCell>> SessionContexts::Start(CodeSpec spec) {
  SB_CO_TRYV(state_->Usable());
  SB_CO_TRYV(CheckCode(spec, state_->core->config));
  SB_CO_TRY(ContextRef context, Pick(spec));
  if (spec.cwd) spec.cwd = Resolve(state_->row.cwd, *spec.cwd);
  const bool fresh = context->command.empty();
  const auto begin = CodeCell::Clock::now();
  if (fresh) {
    context->starting = true;
    auto started = co_await StartDriver(context);
    context->starting = false;
    // One that was only meant by its language is not left behind.
    if (!started && LanguageNamed(context->id)) contexts_.erase(context->id);
    if (!started) co_return std::unexpected(std::move(started).error());
  }
  const std::string command = context->command;
  if (command.empty()) co_return Fail(Code::kConflict, "the context was restarted meanwhile");
  SB_CO_TRY(auto link, state_->Link());
  const milliseconds timeout(spec.timeout_ms.value_or(kDefaultCodeTimeoutMs));
  auto cell = std::make_shared<CodeCell>(state_->core->ex, context->id, ++context->count, fresh, timeout);
  cell->started = begin;
  context->Begin(cell);
  context->last_used_at = NowMs();
  state_->tasks.Spawn(SuperviseCell(context, cell));
  std::string request = DriverRequest(context->count, context->spec.language, spec);
  auto sent = co_await link->Input(command, std::move(request));
  if (!sent) DropDriver(*context, "the connection to the machine broke: " + sent.error().message);
  co_return cell;
}

void SessionContexts::Abandon(const std::shared_ptr<CodeCell>& cell) {
  for (const auto& [id, context] : contexts_) {
    if (context->cell == cell && cell->push == CodeCell::Push::kNone) PushCell(*context, *cell);
  }
}

// One step further: an interrupt first, then the interpreter's death.
void SessionContexts::PushCell(const CodeContext& context, CodeCell& cell) {
  const bool gently = cell.push == CodeCell::Push::kNone;
  cell.push = gently ? CodeCell::Push::kInterrupted : CodeCell::Push::kKilled;
  cell.due = CodeCell::Clock::now() + (gently ? kInterruptGrace : kKillGrace);
  auto link = state_->LinkIfAny();
  if (link && (cell.begun || !gently)) link->Kill(context.command, gently ? kSigInt : kSigKill);
  cell.changed.Notify();
}

Task<> SessionContexts::SuperviseCell(ContextRef context, std::shared_ptr<CodeCell> cell) {
  co_await asio::this_coro::throw_if_cancelled(false);
  // For a cell that cannot tell any more what it used.
  auto usage = co_await state_->connected->machine().GetUsage();
  if (usage) cell->cpu_before_ns = usage->cpu_ns;
  while (!cell->ended()) {
    const std::chrono::nanoseconds left = cell->due - CodeCell::Clock::now();
    if (left > left.zero()) {
      const bool interrupted = cell->push == CodeCell::Push::kInterrupted;
      const std::chrono::nanoseconds pause =
          interrupted ? std::min<std::chrono::nanoseconds>(left, kInterruptAgain) : left;
      auto change = cell->changed.Wait();
      auto r = co_await WithTimeout(std::move(change), pause);
      if (!r && r.error().code == Code::kCancelled) co_return std::unexpected(std::move(r).error());
      // An interpreter may miss one that comes while it goes from one state to another (node does).
      auto link = state_->connected->link();
      if (!r && interrupted && cell->begun && link) link->Kill(context->command, kSigInt);
      continue;
    }
    if (cell->push == CodeCell::Push::kKilled) {
      // Not even its death was reported.
      DropDriver(*context, "the machine does not answer");
      break;
    }
    if (cell->push == CodeCell::Push::kNone) cell->timed_out = true;
    PushCell(*context, *cell);
  }
  co_return Result<>{};
}

Task<> SessionContexts::EndCell(ContextRef context, std::shared_ptr<CodeCell> cell, protocol::Exit exit) {
  co_await asio::this_coro::throw_if_cancelled(false);
  const bool pushed = cell->push == CodeCell::Push::kKilled;
  // A death with a known cause is not looked into.
  const int suspicious = pushed ? 0 : exit.code;
  auto oom = co_await state_->WasOutOfMemory(suspicious, exit.out_of_memory);
  auto usage = co_await state_->connected->machine().GetUsage();
  if (usage) {
    const uint64_t cpu = usage->cpu_ns - std::min(cell->cpu_before_ns, usage->cpu_ns);
    cell->UseMeasured(static_cast<int64_t>(cpu / 1000000), usage->memory_peak_bytes);
  }
  const bool heap_full = exit.code == kAborted && cell->SaysHeapIsFull();
  if ((oom && *oom) || heap_full) {
    cell->End("oom", state_->OutOfMemory() + ": the interpreter was killed, the context starts afresh");
  } else if (pushed) {
    cell->End("killed", "it did not stop when interrupted: the interpreter was killed, the context starts afresh");
  } else {
    cell->End("killed", fmt::format("the interpreter ended with exit code {}, the context starts afresh", exit.code));
  }
  if (context->cell == cell) context->cell = nullptr;
  co_return Result<>{};
}

void SessionContexts::OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) {
  auto context = ContextOf(command);
  if (!context) return;
  const bool waiting = context->cell && !context->cell->begun;
  // What leaves ends without being asked; its exit is nobody's business any more.
  if (context->Take(offset, stream, bytes)) return context->Forget();
  // It was interrupted before it had begun.
  auto link = state_->LinkIfAny();
  const auto& cell = context->cell;
  if (link && waiting && cell && cell->begun && cell->push == CodeCell::Push::kInterrupted)
    link->Kill(command, kSigInt);
}

void SessionContexts::OnExit(const protocol::Exit& exit) {
  auto context = ContextOf(exit.id);
  if (!context) return;
  context->Forget();
  if (context->cell) state_->tasks.Spawn(EndCell(context, context->cell, exit));
}

void SessionContexts::DropDriver(CodeContext& context, std::string why, const char* status) {
  auto link = state_->LinkIfAny();
  if (link && !context.command.empty()) link->Kill(context.command, kSigKill);
  context.Forget();
  if (auto cell = std::exchange(context.cell, nullptr)) cell->End(status, std::move(why));
}

void SessionContexts::DropAll(const char* status, const std::string& why) {
  auto all = std::exchange(contexts_, {});
  for (auto& [id, context] : all) DropDriver(*context, why, status);
}

void SessionContexts::KillOldDrivers() {
  for (const auto& known : state_->connected->link()->known_commands()) {
    if (IsDriverId(known.id)) state_->connected->link()->Kill(known.id, kSigKill);
  }
}

Result<CodeContextInfo> SessionContexts::Interrupt(const std::string& id) {
  SB_TRY(auto context, Find(id));
  if (context->cell && context->cell->push == CodeCell::Push::kNone) PushCell(*context, *context->cell);
  return context->Info();
}

Result<CodeContextInfo> SessionContexts::Restart(const std::string& id) {
  SB_TRY(auto context, Find(id));
  DropDriver(*context, "the context was restarted");
  return context->Info();
}

Result<CodeContextInfo> SessionContexts::Remove(const std::string& id) {
  SB_TRY(auto context, Find(id));
  DropDriver(*context, "the context was deleted");
  contexts_.erase(id);
  return context->Info();
}

void SessionContexts::OnGap(const std::string& command, uint64_t offset, uint64_t bytes) {
  auto context = ContextOf(command);
  if (!context) return;
  context->Gap(offset, bytes);
  if (auto link = state_->LinkIfAny()) link->Ack(command, offset + bytes);
}

std::vector<KeptContext> SessionContexts::Idle() const {
  std::vector<KeptContext> out;
  for (const auto& [id, context] : contexts_) {
    if (context->busy() || context->command.empty()) continue;
    out.push_back(
        {context->id, context->spec, context->count, context->created_at, context->last_used_at, context->command});
  }
  return out;
}

std::optional<std::string> SessionContexts::TakeOver(const RestoredMemory& restored, const std::string& driver) {
  auto kept = std::ranges::find(restored.contexts, driver, &KeptContext::command);
  if (kept == restored.contexts.end()) return std::nullopt;
  auto context = std::make_shared<CodeContext>();
  context->TakeOver(*kept, NewDriverId());
  contexts_[context->id] = context;
  return context->command;
}

}  // namespace sandbar::sandbox
