#include "sandbox/commands/session_commands.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/commands/input_writer.h"
#include "sandbox/commands/log_files.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

// Acknowledge in steps of this size, not per frame. Small enough never to fill the agent's window.
constexpr uint64_t kAckStep = 64 << 10;
constexpr int kKilled = 137;

}  // namespace

std::shared_ptr<RunningCommand> SessionCommands::Find(const std::string& command) const {
  auto it = commands_.find(command);
  return it == commands_.end() ? nullptr : it->second;
}

std::shared_ptr<RunningCommand> SessionCommands::Track(store::Command row, CommandLog::State state) {
  auto run = std::make_shared<RunningCommand>();
  run->log = std::make_shared<CommandLog>(state_->core, state_->core->LogDir(state_->row.id, row.id), std::move(state));
  run->log->Account(state_->row.id, row.id);
  if (row.terminal) run->log->KeepTailOnly();
  run->done = std::make_shared<SharedResult<store::Command>>(state_->core->ex);
  run->row = std::move(row);
  // A raw pointer is enough: the callback goes when the command ends, which is before `run` does.
  run->log->OnProgress([this, r = run.get()] { Ack(*r, false); });
  commands_[run->row.id] = run;
  return run;
}

bool SessionCommands::OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) {
  auto run = Find(command);
  if (!run) return false;
  run->log->Append(offset, stream == 2 ? 2 : 1, bytes);
  Ack(*run, false);
  return true;
}

void SessionCommands::OnGap(const std::string& command, uint64_t offset, uint64_t bytes) {
  if (auto run = Find(command)) run->log->Hole(offset, bytes);
}

bool SessionCommands::OnExit(const protocol::Exit& exit) {
  auto run = Find(exit.id);
  if (!run) return false;
  if (!std::exchange(run->ending, true)) state_->tasks.Spawn(Finish(run, exit));
  return true;
}

void SessionCommands::OnConnected() {
  for (auto& [id, run] : commands_) Ack(*run, true);
  auto link = state_->LinkIfAny();
  if (!link) return;
  for (const auto& id : std::exchange(unacked_exits_, {})) link->AckExit(id);
}

Task<> SessionCommands::InsertRow(store::Command row) {
  auto insert = [row = std::move(row)](store::Journal& journal) { return journal.InsertCommand(row); };
  co_return co_await state_->core->Journal(std::move(insert));
}

Task<StartedCommand> SessionCommands::Start(CommandSpec spec) {
  using namespace asio::experimental::awaitable_operators;
  SB_CO_TRY(auto link, state_->Link());
  SB_CO_TRYV(CheckCommand(spec));
  if (commands_.size() >= state_->core->config.max_commands_per_session) {
    co_return Fail(Code::kTooMany, fmt::format("{} commands are running in this sandbox, the limit is {}",
                                               commands_.size(), state_->core->config.max_commands_per_session));
  }
  store::Command row;
  row.id = NewId("cmd_");
  row.session = state_->row.id;
  row.name = spec.command;
  row.args = spec.args;
  row.started_at = NowMs();
  row.terminal = spec.terminal.has_value();
  protocol::Exec request = state_->MakeExec(spec, row.id);
  SB_CO_TRYV(CheckExecSize(request.argv, request.env));
  row.cwd = request.cwd;

  auto run = Track(row, {});
  StartedCommand started;
  started.command = row;
  if (spec.follow_from_start) started.log = run->log->NewReader({.since = 0, .pinned = true}).value();
  // The row and the process at the same time: neither waits for the other, and the call returns when both are there.
  auto insert = InsertRow(row);
  auto exec = WithTimeout(link->Exec(std::move(request)), state_->core->config.agent_timeout);
  auto both = co_await (std::move(exec) && std::move(insert));
  auto& [executed, inserted] = both;
  if (executed && inserted) co_return started;

  commands_.erase(row.id);
  run->log->OnProgress({});
  run->log->Finish();
  if (executed || executed.error().code == Code::kTimeout) link->Kill(row.id, 9);
  if (inserted) {
    auto remove = [id = row.id](store::Journal& journal) { return journal.DeleteCommand(id); };
    auto removed = co_await state_->core->Journal(std::move(remove));
    if (!removed) log::Error("command {}: {}", row.id, removed.error().message);
  }
  if (executed) co_return std::unexpected(std::move(inserted).error());
  Error error = std::move(executed).error();
  if (error.code == Code::kExecutableNotFound) {
    error.message = "[invalid_argument] executable file not found in $PATH: " + spec.command;
  }
  if (error.code == Code::kTimeout) error.code = Code::kUnavailable;
  if (error.code == Code::kClosed || error.code == Code::kUnavailable) {
    // The machine went away under the call: say what became of it rather than of the connection.
    SB_CO_TRYV(state_->Usable());
  }
  co_return std::unexpected(std::move(error));
}

Result<> SessionCommands::Kill(const std::string& command, int signal) {
  auto run = Find(command);
  if (!run || run->ending) return {};
  SB_TRY(auto link, state_->Link());
  run->killed = true;
  link->Kill(command, signal);
  return {};
}

Result<protocol::StdinState> SessionCommands::InputState(const std::string& command) const {
  auto run = Find(command);
  if (!run || run->ending) return EndedInput(command);
  SB_TRY(auto link, state_->Link());
  auto state = link->Stdin(command);
  if (!state) return Fail(Code::kConflict, "the command was started without standard input");
  return *state;
}

Task<> SessionCommands::Resize(std::string command, protocol::TerminalSize size) {
  SB_CO_TRY(auto link, state_->Link());
  auto done = co_await link->Resize(command, size);
  // The command ended meanwhile.
  if (!done && done.error().code == Code::kNotFound) co_return Result<>{};
  co_return done;
}

void SessionCommands::Ack(RunningCommand& run, bool all) {
  const uint64_t limit = run.log->AckLimit();
  auto link = state_->LinkIfAny();
  if (!link || limit <= run.acked || (!all && limit - run.acked < kAckStep)) return;
  run.acked = limit;
  link->Ack(run.row.id, limit);
}

Task<> SessionCommands::Finish(std::shared_ptr<RunningCommand> run, protocol::Exit exit) {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto& log = *run->log;
  if (exit.final_offset > log.received()) log.Hole(log.received(), exit.final_offset - log.received());
  // Our own line may be there already: the daemon died between writing it and recording the exit.
  const bool noted = log.received() > exit.final_offset;
  // A death with a known cause is not looked into.
  const bool explained = run->killed || exit.timed_out;
  const int suspicious = explained ? 0 : exit.code;
  auto oom = co_await state_->WasOutOfMemory(suspicious, exit.out_of_memory);
  // Shown only when it is on record.
  store::Command row = run->row;
  row.oom_killed = noted || (oom && *oom);
  if (row.oom_killed && !noted) log.Note("sandbar: killed: " + state_->OutOfMemory() + "\n");
  row.exit_code = std::clamp(exit.code, 0, 255);
  row.timed_out = exit.timed_out;
  const auto longest = static_cast<uint64_t>(std::max<int64_t>(NowMs() - row.started_at, 0));
  row.duration_ms = static_cast<int64_t>(exit.duration_ms > 0 ? std::min(exit.duration_ms, longest + 1000) : longest);
  auto update = [row](store::Journal& journal) { return journal.UpdateCommand(row); };
  auto updated = co_await state_->core->Journal(std::move(update));
  // Not acknowledged when it could not be recorded: the agent repeats it to the next daemon.
  if (!updated) log::Error("command {}: {}", row.id, updated.error().message);
  auto link = state_->LinkIfAny();
  if (updated && link) link->AckExit(row.id);
  if (updated && !link) unacked_exits_.push_back(row.id);
  log.OnProgress({});
  log.Finish();
  commands_.erase(row.id);
  last_ended_ = std::chrono::steady_clock::now();
  run->row = row;
  run->done->Set(std::move(row));
  ended_.Notify();
  const uint64_t added = log.received();
  co_return co_await TrimOutput(added);
}

Task<> SessionCommands::TrimOutput(uint64_t added) {
  // What one command leaves is bounded, however much it wrote.
  untrimmed_ += std::min(added, state_->core->config.log_head_bytes + state_->core->config.log_tail_bytes);
  if (untrimmed_ < state_->core->config.log_session_bytes / 8) co_return Result<>{};
  untrimmed_ = 0;
  std::set<std::string> running;
  for (const auto& [id, run] : commands_) running.insert(id);
  std::vector<std::string> only = {state_->row.id};
  auto trim = [dir = state_->core->LogsDir(), only = std::move(only), budget = state_->core->config.log_session_bytes,
               running = std::move(running)] { return TrimLogs(dir, only, budget, running); };
  auto trimmed = co_await state_->core->Files(std::move(trim));
  if (trimmed) state_->core->logs.Set(state_->row.id, trimmed->at(state_->row.id));
  if (!trimmed) log::Warn("logs of {}: {}", state_->row.id, trimmed.error().message);
  co_return Result<>{};
}

Task<> SessionCommands::EndAll() {
  auto left = std::exchange(commands_, {});
  Result<> out;
  for (auto& [id, run] : left) {
    run->row.exit_code = kKilled;
    run->row.oom_killed = state_->connected && state_->connected->out_of_memory();
    if (run->row.oom_killed) run->log->Note("sandbar: killed: " + state_->OutOfMemory() + "\n");
    run->row.duration_ms = std::max<int64_t>(NowMs() - run->row.started_at, 0);
    auto update = [row = run->row](store::Journal& journal) { return journal.UpdateCommand(row); };
    auto updated = co_await state_->core->Journal(std::move(update));
    if (!updated) out = std::move(updated);
    run->log->OnProgress({});
    run->log->Finish();
    run->done->Set(run->row);
  }
  co_return out;
}

Task<> SessionCommands::Recover(std::vector<store::Command> unfinished) {
  for (auto& row : unfinished) {
    auto scan = [dir = state_->core->LogDir(state_->row.id, row.id)] { return CommandLog::Scan(dir); };
    auto state = co_await state_->core->Files(std::move(scan));
    if (!state) log::Error("log of {}: {}", row.id, state.error().message);
    Track(std::move(row), state ? *std::move(state) : CommandLog::State{});
  }
  co_return Result<>{};
}

void SessionCommands::EndUnknown(const std::vector<protocol::CommandState>& known) {
  // Copies: the table changes when one ends.
  const auto all = commands_;
  for (const auto& [id, run] : all) {
    const bool there = std::ranges::find(known, id, &protocol::CommandState::id) != known.end();
    if (there || std::exchange(run->ending, true)) continue;
    protocol::Exit lost;
    lost.id = id;
    lost.code = kKilled;
    lost.final_offset = run->log->received();
    run->killed = true;
    state_->tasks.Spawn(Finish(run, std::move(lost)));
  }
}

// The log goes up to what the command had written when its memory was saved, at most; the agent repeats what was not
// acknowledged then, which the original has stored by now.
Task<std::string> SessionCommands::TakeOver(const RestoredMemory* restored, store::Command row, uint64_t produced) {
  std::string from = std::exchange(row.id, NewId("cmd_"));
  std::string id = row.id;
  row.session = state_->row.id;
  row.exit_code.reset();
  row.duration_ms.reset();
  row.timed_out = row.oom_killed = false;
  SB_CO_TRYV(co_await InsertRow(row));
  auto run = Track(std::move(row), {});
  auto reader = co_await restored->open_log(std::move(from));
  // Gone with its sandbox: it begins with a hole then.
  if (!reader) co_return id;
  uint64_t at = 0;
  while (at < produced && !(*reader)->caught_up()) {
    SB_CO_TRY(LogChunk chunk, co_await (*reader)->Next());
    if (chunk.bytes.empty() && chunk.gap == 0) break;
    const uint64_t gap = std::min(chunk.gap, produced - at);
    if (gap > 0) run->log->Hole(at, gap);
    at += gap;
    chunk.bytes.resize(std::min<uint64_t>(chunk.bytes.size(), produced - at));
    if (!chunk.bytes.empty()) run->log->Append(at, chunk.stream, chunk.bytes);
    at += chunk.bytes.size();
  }
  co_return id;
}

void SessionCommands::ReleasePins() {
  // Copies: the table changes when one ends.
  const auto all = commands_;
  for (const auto& [id, run] : all) run->log->ReleasePins();
}

Task<> SessionCommands::AwaitExits(int64_t until, std::function<bool()> expected) {
  while (!commands_.empty() && NowMs() < until) {
    const bool recording = std::ranges::any_of(commands_, [](const auto& c) { return c.second->ending; });
    if (!recording && !expected()) break;
    const std::chrono::milliseconds left(std::max<int64_t>(until - NowMs(), 1));
    auto ended = ended_.Wait();
    auto r = co_await WithTimeout(std::move(ended), left);
    if (!r && r.error().code == Code::kCancelled) co_return std::unexpected(std::move(r).error());
  }
  co_return Result<>{};
}

void SessionCommands::Detach() {
  for (auto& [id, run] : commands_) run->log->OnProgress({});
}

}  // namespace sandbar::sandbox
