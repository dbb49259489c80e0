#include "sandbox/sessions/session_state.h"

#include <algorithm>

#include "base/ids.h"
#include "sandbox/commands/environment.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

constexpr int kKilled = 137;

}  // namespace

Result<> SessionState::Usable() const {
  switch (phase) {
    case SessionPhase::kRunning:
      return {};
    case SessionPhase::kStarting:
      return Fail(Code::kUnavailable, "the sandbox is starting");
    case SessionPhase::kStopping:
      if (row.status == store::Status::kSnapshotting)
        return Fail(Code::kSnapshotting, "a snapshot of the sandbox is being made");
      return Fail(Code::kStopping, "the sandbox is stopping");
    case SessionPhase::kEnded:
      break;
  }
  return Fail(Code::kStopped, "the sandbox has stopped");
}

Result<std::shared_ptr<engine::GuestLink>> SessionState::Link() const {
  SB_TRYV(Usable());
  auto link = connected->link();
  if (!link) return Fail(Code::kUnavailable, "the sandbox is reconnecting; try again");
  return link;
}

Task<store::Sandbox> SessionState::Save() {
  store::SandboxEdit nothing;
  co_return co_await SaveWith(std::move(nothing));
}

Task<store::Sandbox> SessionState::SaveWith(store::SandboxEdit edit, std::function<Result<>(store::Store&)> then) {
  row.updated_at = NowMs();
  auto write = [row = row, edit = std::move(edit),
                then = std::move(then)](store::Store& store) -> Result<store::Sandbox> {
    auto both = [&row, &edit](store::Sandbox& s) -> Result<> {
      if (edit) SB_TRYV(edit(s));
      if (s.current_session == row.id) {
        if (s.status != row.status) s.status_updated_at = row.updated_at;
        s.status = row.status;
        s.engine = row.engine;
        s.isolation_class = row.isolation_class;
      }
      s.updated_at = row.updated_at;
      return {};
    };
    SB_TRY(auto sandbox, store.SaveSession(row, both));
    if (then) SB_TRYV(then(store));
    return sandbox;
  };
  co_return co_await core->Combined(std::move(write));
}

protocol::Exec SessionState::MakeExec(const CommandSpec& spec, const std::string& id) const {
  protocol::Exec exec;
  exec.id = id;
  exec.argv.push_back(spec.command);
  exec.argv.insert(exec.argv.end(), spec.args.begin(), spec.args.end());
  exec.env = MakeEnvironment(row, env, spec.env, spec.sudo);
  exec.cwd = Resolve(row.cwd, spec.cwd.value_or(row.cwd));
  exec.uid = spec.sudo ? 0 : row.uid;
  exec.gid = spec.sudo ? 0 : row.gid;
  exec.user = spec.sudo ? "root" : row.user;
  exec.timeout_ms = static_cast<uint64_t>(spec.timeout_ms.value_or(0));
  exec.standard_input = spec.standard_input;
  exec.terminal = spec.terminal;
  return exec;
}

Task<bool> SessionState::WasOutOfMemory(int code, bool told) {
  if (code != kKilled || phase != SessionPhase::kRunning) co_return false;
  if (told) co_return true;
  auto usage = co_await connected->machine().GetUsage();
  if (!usage) co_return false;
  const bool grew = usage->oom_kills > oom_kills;
  oom_kills = std::max(oom_kills, usage->oom_kills);
  co_return grew;
}

}  // namespace sandbar::sandbox
