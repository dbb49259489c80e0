// Commands, their logs, and files.
#include <fmt/format.h>

#include "sandbox/service_impl.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

std::unexpected<Error> NoCommand() {
  return Fail(Code::kNotFound, "command not found");
}

// Where relative paths of a request start: its own cwd, itself relative to the session's.
Result<std::string> BaseDir(const store::Session& session, const std::optional<std::string>& cwd) {
  if (!cwd) return session.cwd;
  SB_TRYV(CheckPath("cwd", *cwd));
  return Resolve(session.cwd, *cwd);
}

// Keeps the link alive for as long as someone reads from it, also past the session's end.
class HeldFileStream final : public engine::FileStream {
 public:
  HeldFileStream(std::shared_ptr<engine::GuestLink> link, std::unique_ptr<engine::FileStream> stream)
      : link_(std::move(link)), stream_(std::move(stream)) {}
  Task<std::string> Next() override { return stream_->Next(); }

 private:
  std::shared_ptr<engine::GuestLink> link_;
  std::unique_ptr<engine::FileStream> stream_;  // after the link: goes first
};

}  // namespace

Task<StartedCommand> ServiceImpl::StartCommand(Scope scope, std::string session, CommandSpec spec) {
  SB_CO_TRY(auto live, co_await FindLive(std::move(scope), std::move(session)));
  auto work = live->Start(std::move(spec));
  co_return co_await RunToEnd(&tasks_, std::move(work));
}

Task<store::Command> ServiceImpl::GetCommand(Scope scope, std::string session, std::string command) {
  SB_CO_TRY(auto row, co_await FindSession(std::move(scope), std::move(session)));
  const Live* live = LiveOf(row.id);
  auto run = live != nullptr ? live->session->Find(command) : nullptr;
  if (run) co_return run->row;
  auto find = [session = row.id, command](store::Store& store) { return store.FindCommand(session, command); };
  SB_CO_TRY(auto found, co_await core_.Db(std::move(find)));
  if (!found) co_return NoCommand();
  co_return *std::move(found);
}

Task<store::Command> ServiceImpl::WaitCommand(Scope scope, std::string session, std::string command) {
  SB_CO_TRY(auto row, co_await FindSession(scope, session));
  const Live* live = LiveOf(row.id);
  auto run = live != nullptr ? live->session->Find(command) : nullptr;
  if (run) co_return co_await run->done->Wait();
  co_return co_await GetCommand(std::move(scope), std::move(session), std::move(command));
}

Task<std::vector<store::Command>> ServiceImpl::ListCommands(Scope scope, std::string session) {
  SB_CO_TRY(auto row, co_await FindSession(std::move(scope), std::move(session)));
  auto list = [session = row.id](store::Store& store) { return store.ListCommands(session); };
  co_return co_await core_.Db(std::move(list));
}

Task<store::Command> ServiceImpl::KillCommand(Scope scope, std::string session, std::string command, int signal) {
  if (signal < 1 || signal > 64) co_return Fail(Code::kBadRequest, fmt::format("signal: 1 to 64, got {}", signal));
  SB_CO_TRY(auto row, co_await GetCommand(std::move(scope), session, command));
  const Live* live = LiveOf(session);
  // A command that has ended is returned as it is.
  if (row.exit_code || live == nullptr) co_return row;
  SB_CO_TRYV(live->session->Kill(command, signal));
  co_return row;
}

Task<std::unique_ptr<LogReader>> ServiceImpl::OpenLog(Scope scope, std::string session, std::string command) {
  SB_CO_TRY(auto row, co_await GetCommand(std::move(scope), session, command));
  const Live* live = LiveOf(session);
  auto run = live != nullptr ? live->session->Find(command) : nullptr;
  if (run) co_return run->log->NewReader(false);
  auto scan = [dir = core_.LogDir(row.session, row.id)] { return CommandLog::Scan(dir); };
  SB_CO_TRY(auto state, co_await core_.Files(std::move(scan)));
  auto log = std::make_shared<CommandLog>(&core_, core_.LogDir(row.session, row.id), std::move(state));
  log->Finish();
  co_return log->NewReader(false);
}

Task<std::unique_ptr<engine::FileStream>> ServiceImpl::ReadFile(Scope scope, std::string session, std::string path,
                                                                std::optional<std::string> cwd) {
  SB_CO_TRY(auto live, co_await FindLive(std::move(scope), std::move(session)));
  SB_CO_TRYV(CheckPath("path", path));
  SB_CO_TRY(auto base, BaseDir(live->row(), cwd));
  SB_CO_TRY(auto link, live->Link());
  auto user = live->user();
  SB_CO_TRY(auto stream, co_await link->ReadFile(std::move(path), std::move(base), std::move(user)));
  co_return std::make_unique<HeldFileStream>(std::move(link), std::move(stream));
}

Task<> ServiceImpl::WriteTar(Scope scope, std::string session, std::optional<std::string> cwd,
                             engine::ByteSource* source) {
  SB_CO_TRY(auto live, co_await FindLive(std::move(scope), std::move(session)));
  SB_CO_TRY(auto base, BaseDir(live->row(), cwd));
  SB_CO_TRY(auto link, live->Link());
  auto user = live->user();
  co_return co_await link->WriteTar(std::move(base), std::move(user), source);
}

Task<> ServiceImpl::MakeDir(Scope scope, std::string session, std::string path, std::optional<std::string> cwd,
                            bool recursive) {
  SB_CO_TRY(auto live, co_await FindLive(std::move(scope), std::move(session)));
  SB_CO_TRYV(CheckPath("path", path));
  SB_CO_TRY(auto base, BaseDir(live->row(), cwd));
  SB_CO_TRY(auto link, live->Link());
  auto user = live->user();
  co_return co_await link->MakeDir(std::move(path), std::move(base), std::move(user), recursive);
}

}  // namespace sandbar::sandbox
