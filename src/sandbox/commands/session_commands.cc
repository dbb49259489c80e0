// Commands of a live session: start, output, exit, kill.
#include <fmt/format.h>

#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/commands/environment.h"
#include "sandbox/commands/log_files.h"
#include "sandbox/sessions/session.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

// Acknowledge in steps of this size, not per frame. Small enough never to fill the agent's window.
constexpr uint64_t kAckStep = 64 << 10;
constexpr int kKilled = 137;

}  // namespace

std::shared_ptr<RunningCommand> Session::Find(const std::string& command) const {
  auto it = commands_.find(command);
  return it == commands_.end() ? nullptr : it->second;
}

std::shared_ptr<RunningCommand> Session::Track(store::Command row, CommandLog::State state) {
  auto run = std::make_shared<RunningCommand>();
  run->log = std::make_shared<CommandLog>(core_, core_->LogDir(row_.id, row.id), std::move(state));
  run->log->Account(row_.id, row.id);
  run->done = std::make_shared<SharedResult<store::Command>>(core_->ex);
  run->row = std::move(row);
  // A raw pointer is enough: the callback goes when the command ends, which is before `run` does.
  run->log->OnProgress([this, r = run.get()] { Ack(*r, false); });
  commands_[run->row.id] = run;
  return run;
}

protocol::Exec Session::MakeExec(const CommandSpec& spec, const std::string& id) const {
  protocol::Exec exec;
  exec.id = id;
  exec.argv.push_back(spec.command);
  exec.argv.insert(exec.argv.end(), spec.args.begin(), spec.args.end());
  exec.env = MakeEnvironment(row_, env_, spec.env, spec.sudo);
  exec.cwd = Resolve(row_.cwd, spec.cwd.value_or(row_.cwd));
  exec.uid = spec.sudo ? 0 : row_.uid;
  exec.gid = spec.sudo ? 0 : row_.gid;
  exec.user = spec.sudo ? "root" : row_.user;
  exec.timeout_ms = static_cast<uint64_t>(spec.timeout_ms.value_or(0));
  return exec;
}

Task<> Session::InsertRow(store::Command row) {
  auto insert = [row = std::move(row)](store::Store& store) { return store.InsertCommand(row); };
  co_return co_await core_->Db(std::move(insert));
}

Task<StartedCommand> Session::Start(CommandSpec spec) {
  using namespace asio::experimental::awaitable_operators;
  SB_CO_TRY(auto link, Link());
  SB_CO_TRYV(CheckCommand(spec));
  if (commands_.size() >= core_->config.max_commands_per_session) {
    co_return Fail(Code::kTooMany, fmt::format("{} commands are running in this sandbox, the limit is {}",
                                               commands_.size(), core_->config.max_commands_per_session));
  }
  store::Command row;
  row.id = NewId("cmd_");
  row.session = row_.id;
  row.name = spec.command;
  row.args = spec.args;
  row.started_at = NowMs();
  protocol::Exec request = MakeExec(spec, row.id);
  SB_CO_TRYV(CheckExecSize(request.argv, request.env));
  row.cwd = request.cwd;

  auto run = Track(row, {});
  StartedCommand started;
  started.command = row;
  if (spec.follow_from_start) started.log = run->log->NewReader(true);
  // The row and the process at the same time: neither waits for the other, and the call returns when both are there.
  auto insert = InsertRow(row);
  auto exec = WithTimeout(link->Exec(std::move(request)), core_->config.agent_timeout);
  auto both = co_await (std::move(exec) && std::move(insert));
  auto& [executed, inserted] = both;
  if (executed && inserted) co_return started;

  commands_.erase(row.id);
  run->log->OnProgress({});
  run->log->Finish();
  if (executed || executed.error().code == Code::kTimeout) link->Kill(row.id, 9);
  if (inserted) {
    auto remove = [id = row.id](store::Store& store) { return store.DeleteCommand(id); };
    auto removed = co_await core_->Db(std::move(remove));
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
    SB_CO_TRYV(Usable());
  }
  co_return std::unexpected(std::move(error));
}

Result<> Session::Kill(const std::string& command, int signal) {
  auto run = Find(command);
  if (!run || run->ending) return {};
  SB_TRY(auto link, Link());
  run->killed = true;
  link->Kill(command, signal);
  return {};
}

void Session::Ack(RunningCommand& run, bool all) {
  const uint64_t limit = run.log->AckLimit();
  auto link = connected_ ? connected_->link() : nullptr;
  if (!link || limit <= run.acked || (!all && limit - run.acked < kAckStep)) return;
  run.acked = limit;
  link->Ack(run.row.id, limit);
}

void Session::OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) {
  if (source_ && source_->id == command) source_->Take(bytes);
  if (auto run = Find(command)) {
    run->log->Append(offset, stream == 2 ? 2 : 1, bytes);
    Ack(*run, false);
    return;
  }
  OnDriverOutput(command, offset, stream, bytes);
  // The source's, an interpreter's (what it says is bounded where it is kept), or one whose start failed on our side.
  if (connected_ && connected_->link()) connected_->link()->Ack(command, offset + bytes.size());
}

void Session::OnGap(const std::string& command, uint64_t offset, uint64_t bytes) {
  if (auto run = Find(command)) run->log->Hole(offset, bytes);
  if (auto context = ContextOf(command)) {
    context->Gap(offset, bytes);
    if (connected_ && connected_->link()) connected_->link()->Ack(command, offset + bytes);
  }
}

void Session::OnExit(const protocol::Exit& exit) {
  if (source_ && source_->id == exit.id) {
    source_->exit_code = exit.code;
    source_->changed.Notify();
  }
  OnDriverExit(exit);
  auto run = Find(exit.id);
  if (!run) {
    if (connected_ && connected_->link()) connected_->link()->AckExit(exit.id);
    return;
  }
  if (std::exchange(run->ending, true)) return;
  tasks_.Spawn(FinishCommand(run, exit));
}

Task<bool> Session::WasOutOfMemory(int code, bool told) {
  if (code != kKilled || phase_ != Phase::kRunning) co_return false;
  if (told) co_return true;
  auto usage = co_await connected_->machine().GetUsage();
  if (!usage) co_return false;
  const bool grew = usage->oom_kills > oom_kills_;
  oom_kills_ = std::max(oom_kills_, usage->oom_kills);
  co_return grew;
}

Task<> Session::FinishCommand(std::shared_ptr<RunningCommand> run, protocol::Exit exit) {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto& log = *run->log;
  if (exit.final_offset > log.received()) log.Hole(log.received(), exit.final_offset - log.received());
  // Our own line may be there already: the daemon died between writing it and recording the exit.
  const bool noted = log.received() > exit.final_offset;
  // A death with a known cause is not looked into.
  const bool explained = run->killed || exit.timed_out;
  const int suspicious = explained ? 0 : exit.code;
  auto oom = co_await WasOutOfMemory(suspicious, exit.out_of_memory);
  // Shown only when it is on record.
  store::Command row = run->row;
  row.oom_killed = noted || (oom && *oom);
  if (row.oom_killed && !noted) log.Note("sandbar: killed: " + OutOfMemory() + "\n");
  row.exit_code = std::clamp(exit.code, 0, 255);
  row.timed_out = exit.timed_out;
  const auto longest = static_cast<uint64_t>(std::max<int64_t>(NowMs() - row.started_at, 0));
  row.duration_ms = static_cast<int64_t>(exit.duration_ms > 0 ? std::min(exit.duration_ms, longest + 1000) : longest);
  auto update = [row](store::Store& store) { return store.UpdateCommand(row); };
  auto updated = co_await core_->Db(std::move(update));
  // Not acknowledged when it could not be recorded: the agent repeats it to the next daemon.
  if (!updated) log::Error("command {}: {}", row.id, updated.error().message);
  auto link = connected_ ? connected_->link() : nullptr;
  if (updated && link) link->AckExit(row.id);
  if (updated && !link) unacked_exits_.push_back(row.id);
  log.OnProgress({});
  log.Finish();
  commands_.erase(row.id);
  last_used_ = std::chrono::steady_clock::now();
  run->row = row;
  run->done->Set(std::move(row));
  command_ended_.Notify();
  const uint64_t added = log.received();
  co_return co_await TrimOutput(added);
}

Task<> Session::TrimOutput(uint64_t added) {
  // What one command leaves is bounded, however much it wrote.
  untrimmed_ += std::min(added, core_->config.log_head_bytes + core_->config.log_tail_bytes);
  if (untrimmed_ < core_->config.log_session_bytes / 8) co_return Result<>{};
  untrimmed_ = 0;
  std::set<std::string> running;
  for (const auto& [id, run] : commands_) running.insert(id);
  std::vector<std::string> only = {row_.id};
  auto trim = [dir = core_->LogsDir(), only = std::move(only), budget = core_->config.log_session_bytes,
               running = std::move(running)] { return TrimLogs(dir, only, budget, running); };
  auto trimmed = co_await core_->Files(std::move(trim));
  if (trimmed) core_->logs.Set(row_.id, trimmed->at(row_.id));
  if (!trimmed) log::Warn("logs of {}: {}", row_.id, trimmed.error().message);
  co_return Result<>{};
}

Task<> Session::FinishLostCommands() {
  auto left = std::exchange(commands_, {});
  Result<> out;
  for (auto& [id, run] : left) {
    run->row.exit_code = kKilled;
    run->row.oom_killed = connected_ && connected_->out_of_memory();
    if (run->row.oom_killed) run->log->Note("sandbar: killed: " + OutOfMemory() + "\n");
    run->row.duration_ms = std::max<int64_t>(NowMs() - run->row.started_at, 0);
    auto update = [row = run->row](store::Store& store) { return store.UpdateCommand(row); };
    auto updated = co_await core_->Db(std::move(update));
    if (!updated) out = std::move(updated);
    run->log->OnProgress({});
    run->log->Finish();
    run->done->Set(run->row);
  }
  co_return out;
}

Task<> Session::RecoverCommands(std::vector<store::Command> unfinished) {
  for (auto& row : unfinished) {
    auto scan = [dir = core_->LogDir(row_.id, row.id)] { return CommandLog::Scan(dir); };
    auto state = co_await core_->Files(std::move(scan));
    if (!state) log::Error("log of {}: {}", row.id, state.error().message);
    Track(std::move(row), state ? *std::move(state) : CommandLog::State{});
  }
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
