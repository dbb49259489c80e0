#include "sandbox/code/code_contexts_impl.h"

namespace sandbar::sandbox {
namespace {

class HeldCodeStream final : public CodeStream {
 public:
  HeldCodeStream(std::shared_ptr<Session> session, std::shared_ptr<CodeCell> cell)
      : session_(std::move(session)), cell_(std::move(cell)), use_(Session::Use(session_)) {}
  HeldCodeStream(const HeldCodeStream&) = delete;
  HeldCodeStream& operator=(const HeldCodeStream&) = delete;
  ~HeldCodeStream() override { session_->contexts().Abandon(cell_); }
  Task<std::string> Next() override { return cell_->Next(); }

 private:
  std::shared_ptr<Session> session_;
  std::shared_ptr<CodeCell> cell_;
  std::shared_ptr<void> use_;  // code that runs is no idleness
};

Task<std::unique_ptr<CodeStream>> Begin(std::shared_ptr<Session> session, CodeSpec spec) {
  SB_CO_TRY(auto cell, co_await session->contexts().Start(std::move(spec)));
  co_return std::make_unique<HeldCodeStream>(std::move(session), std::move(cell));
}

Result<CodeContextInfo> ChangeContext(Session& session, const std::string& id, ContextChange change) {
  switch (change) {
    case ContextChange::kInterrupt:
      return session.contexts().Interrupt(id);
    case ContextChange::kRestart:
      return session.contexts().Restart(id);
    case ContextChange::kRemove:
      break;
  }
  return session.contexts().Remove(id);
}

}  // namespace

Task<std::unique_ptr<CodeStream>> CodeContextsImpl::Run(Scope scope, std::string name, CodeSpec spec) {
  SB_CO_TRY(auto session, co_await resumer_->ResumeForUse(std::move(scope), std::move(name)));
  // To its end even when the caller goes: a stream that nobody takes interrupts its cell.
  auto work = Begin(std::move(session), std::move(spec));
  co_return co_await RunToEnd(&core_->tasks, std::move(work));
}

Task<CodeContextInfo> CodeContextsImpl::Create(Scope scope, std::string name, CodeContextSpec spec) {
  SB_CO_TRY(auto session, co_await resumer_->ResumeForUse(std::move(scope), std::move(name)));
  co_return session->contexts().Add(std::move(spec));
}

Task<std::vector<CodeContextInfo>> CodeContextsImpl::List(Scope scope, std::string name) {
  SB_CO_TRY(auto sandbox, co_await records_->FindSandbox(std::move(scope), std::move(name)));
  const auto session = active_->Find(sandbox.current_session);
  if (!session) co_return std::vector<CodeContextInfo>{};
  co_return session->contexts().List();
}

Task<CodeContextInfo> CodeContextsImpl::Change(Scope scope, std::string name, std::string id, ContextChange change) {
  SB_CO_TRY(auto sandbox, co_await records_->FindSandbox(std::move(scope), std::move(name)));
  const auto session = active_->Find(sandbox.current_session);
  if (!session) co_return Fail(Code::kStopped, "the sandbox has stopped, and its contexts with it");
  co_return ChangeContext(*session, id, change);
}

}  // namespace sandbar::sandbox
