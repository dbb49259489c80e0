#include "sandbox/commands/commands_impl.h"

#include <fmt/format.h>

#include "sandbox/commands/command_log.h"
#include "sandbox/commands/input_writer.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

std::unexpected<Error> NoCommand() {
  return Fail(Code::kNotFound, "command not found");
}

}  // namespace

std::shared_ptr<RunningCommand> CommandsImpl::FindRunning(const std::string& session,
                                                          const std::string& command) const {
  const auto active = active_->Find(session);
  return active ? active->commands().Find(command) : nullptr;
}

Task<StartedCommand> CommandsImpl::Start(Scope scope, std::string session, CommandSpec spec) {
  SB_CO_TRY(auto active, co_await records_->FindActive(std::move(scope), std::move(session)));
  auto work = active->commands().Start(std::move(spec));
  co_return co_await RunToEnd(&core_->tasks, std::move(work));
}

Task<store::Command> CommandsImpl::Get(Scope scope, std::string session, std::string command) {
  SB_CO_TRY(auto row, co_await records_->FindSession(std::move(scope), std::move(session)));
  auto run = FindRunning(row.id, command);
  if (run) co_return run->row;
  auto find = [session = row.id, command](store::Journal& journal) { return journal.FindCommand(session, command); };
  SB_CO_TRY(auto found, co_await core_->Journal(std::move(find)));
  if (!found) co_return NoCommand();
  co_return *std::move(found);
}

Task<store::Command> CommandsImpl::Wait(Scope scope, std::string session, std::string command) {
  SB_CO_TRY(auto row, co_await records_->FindSession(scope, session));
  auto run = FindRunning(row.id, command);
  if (run) co_return co_await run->done->Wait();
  co_return co_await Get(std::move(scope), std::move(session), std::move(command));
}

Task<std::vector<store::Command>> CommandsImpl::List(Scope scope, std::string session) {
  SB_CO_TRY(auto row, co_await records_->FindSession(std::move(scope), std::move(session)));
  auto list = [session = row.id](store::Journal& journal) { return journal.ListCommands(session); };
  co_return co_await core_->Journal(std::move(list));
}

Task<store::Command> CommandsImpl::Kill(Scope scope, std::string session, std::string command, int signal) {
  if (signal < 1 || signal > 64) co_return Fail(Code::kBadRequest, fmt::format("signal: 1 to 64, got {}", signal));
  SB_CO_TRY(auto row, co_await Get(std::move(scope), session, command));
  const auto active = active_->Find(session);
  // A command that has ended is returned as it is.
  if (row.exit_code || !active) co_return row;
  SB_CO_TRYV(active->commands().Kill(command, signal));
  co_return row;
}

Task<std::unique_ptr<LogReader>> CommandsImpl::OpenLog(Scope scope, std::string session, std::string command,
                                                       ReadFrom from) {
  SB_CO_TRY(auto row, co_await Get(std::move(scope), session, command));
  auto run = FindRunning(session, command);
  if (run) co_return run->log->NewReader(from);
  auto scan = [dir = core_->LogDir(row.session, row.id)] { return CommandLog::Scan(dir); };
  SB_CO_TRY(auto state, co_await core_->Files(std::move(scan)));
  auto log = std::make_shared<CommandLog>(core_, core_->LogDir(row.session, row.id), std::move(state));
  log->Finish();
  co_return log->NewReader(from);
}

Task<protocol::StdinState> CommandsImpl::GetInput(Scope scope, std::string session, std::string command) {
  SB_CO_TRY(auto row, co_await Get(std::move(scope), session, command));
  const auto active = active_->Find(session);
  if (!active) co_return EndedInput(row.id);
  co_return active->commands().InputState(row.id);
}

Task<std::unique_ptr<InputWriter>> CommandsImpl::OpenInput(Scope scope, std::string session, std::string command) {
  SB_CO_TRY(auto row, co_await Get(std::move(scope), session, command));
  const auto active = active_->Find(session);
  // The writer keeps the whole session, of which the commands are a part.
  std::shared_ptr<SessionCommands> commands;
  if (active) commands = std::shared_ptr<SessionCommands>(active, &active->commands());
  co_return OpenInputWriter(std::move(commands), row.id);
}

Task<> CommandsImpl::Resize(Scope scope, std::string session, std::string command, protocol::TerminalSize size) {
  SB_CO_TRY(auto row, co_await Get(std::move(scope), session, command));
  if (!row.terminal) co_return Fail(Code::kConflict, "the command has no terminal");
  const auto active = active_->Find(session);
  // One that has ended has nothing to resize; the caller could not know.
  if (row.exit_code || !active) co_return Result<>{};
  co_return co_await active->commands().Resize(row.id, size);
}

}  // namespace sandbar::sandbox
