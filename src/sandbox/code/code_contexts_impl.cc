// Code in contexts: finds the session that a name means and holds it while its cell is read.
#include "sandbox/service_impl.h"

namespace sandbar::sandbox {
namespace {

class HeldCodeStream final : public CodeStream {
 public:
  HeldCodeStream(std::shared_ptr<Session> session, std::shared_ptr<CodeCell> cell)
      : session_(std::move(session)), cell_(std::move(cell)), use_(Session::Use(session_)) {}
  HeldCodeStream(const HeldCodeStream&) = delete;
  HeldCodeStream& operator=(const HeldCodeStream&) = delete;
  ~HeldCodeStream() override { session_->AbandonCode(cell_); }
  Task<std::string> Next() override { return cell_->Next(); }

 private:
  std::shared_ptr<Session> session_;
  std::shared_ptr<CodeCell> cell_;
  std::shared_ptr<void> use_;  // code that runs is no idleness
};

Task<std::unique_ptr<CodeStream>> Begin(std::shared_ptr<Session> session, CodeSpec spec) {
  SB_CO_TRY(auto cell, co_await session->StartCode(std::move(spec)));
  co_return std::make_unique<HeldCodeStream>(std::move(session), std::move(cell));
}

Result<CodeContextInfo> Change(Session& session, const std::string& id, ContextChange change) {
  switch (change) {
    case ContextChange::kInterrupt:
      return session.InterruptContext(id);
    case ContextChange::kRestart:
      return session.RestartContext(id);
    case ContextChange::kRemove:
      break;
  }
  return session.RemoveContext(id);
}

}  // namespace

Task<std::shared_ptr<Session>> ServiceImpl::FindRunning(Scope scope, std::string name) {
  SB_CO_TRY(SandboxView view, co_await Resume(scope, std::move(name), ResumeFrom::kEither));
  co_return co_await FindLive(std::move(scope), view.session.id);
}

Task<std::unique_ptr<CodeStream>> ServiceImpl::RunCode(Scope scope, std::string name, CodeSpec spec) {
  SB_CO_TRY(auto session, co_await FindRunning(std::move(scope), std::move(name)));
  // To its end even when the caller goes: a stream that nobody takes interrupts its cell.
  auto work = Begin(std::move(session), std::move(spec));
  co_return co_await RunToEnd(&tasks_, std::move(work));
}

Task<CodeContextInfo> ServiceImpl::CreateContext(Scope scope, std::string name, CodeContextSpec spec) {
  SB_CO_TRY(auto session, co_await FindRunning(std::move(scope), std::move(name)));
  co_return session->AddContext(std::move(spec));
}

Task<std::vector<CodeContextInfo>> ServiceImpl::ListContexts(Scope scope, std::string name) {
  SB_CO_TRY(auto sandbox, co_await FindSandbox(std::move(scope), std::move(name)));
  const Live* live = LiveOf(sandbox.current_session);
  if (live == nullptr) co_return std::vector<CodeContextInfo>{};
  co_return live->session->Contexts();
}

Task<CodeContextInfo> ServiceImpl::ChangeContext(Scope scope, std::string name, std::string id, ContextChange change) {
  SB_CO_TRY(auto sandbox, co_await FindSandbox(std::move(scope), std::move(name)));
  const Live* live = LiveOf(sandbox.current_session);
  if (live == nullptr) co_return Fail(Code::kStopped, "the sandbox has stopped, and its contexts with it");
  co_return Change(*live->session, id, change);
}

}  // namespace sandbar::sandbox
