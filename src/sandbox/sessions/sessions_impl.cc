#include "sandbox/sessions/sessions_impl.h"

namespace sandbar::sandbox {
namespace {

Task<store::Session> Apply(std::shared_ptr<Session> session, Task<> change) {
  SB_CO_TRYV(co_await std::move(change));
  co_return session->row();
}

}  // namespace

Task<Page<store::Session>> SessionsImpl::List(Scope scope, ListQuery query) {
  return records_->ListSessions(std::move(scope), std::move(query));
}

Task<SandboxView> SessionsImpl::Get(Scope scope, std::string session) {
  SandboxView view;
  SB_CO_TRY(view.session, co_await records_->FindSession(std::move(scope), std::move(session)));
  SB_CO_TRY(view.sandbox, co_await records_->SandboxOf(view.session));
  co_return view;
}

Task<SandboxView> SessionsImpl::Stop(Scope scope, std::string session) {
  SandboxView view;
  SB_CO_TRY(view.session, co_await records_->FindSession(scope, session));
  if (auto stop = stopper_->Request(session, StopCause::kRequested, "requested")) {
    SB_CO_TRY(view.sandbox, co_await stop->Wait());
    SB_CO_TRY(view.session, co_await records_->FindSession(scope, std::move(session)));
    if (!view.session.snapshot.empty()) {
      SB_CO_TRY(view.snapshot, co_await records_->FindSnapshot(std::move(scope), view.session.snapshot));
    }
    co_return view;
  }
  SB_CO_TRY(view.sandbox, co_await records_->SandboxOf(view.session));
  co_return view;
}

Task<store::Session> SessionsImpl::ExtendTimeout(Scope scope, std::string session, int64_t duration_ms) {
  SB_CO_TRY(auto active, co_await records_->FindActive(std::move(scope), std::move(session)));
  auto work = Apply(active, active->clock().Extend(duration_ms));
  co_return co_await RunToEnd(&core_->tasks, std::move(work));
}

Task<store::Session> SessionsImpl::SetNetwork(Scope scope, std::string session, egress::NetworkPolicy policy) {
  SB_CO_TRY(auto active, co_await records_->FindActive(std::move(scope), std::move(session)));
  SB_CO_TRY(auto compiled, egress::Compile(std::move(policy)));
  auto work = Apply(active, active->network().Set(std::move(compiled)));
  co_return co_await RunToEnd(&core_->tasks, std::move(work));
}

Task<NetworkView> SessionsImpl::Network(Scope scope, std::string session) {
  SB_CO_TRY(auto row, co_await records_->FindSession(std::move(scope), std::move(session)));
  NetworkView view{.policy = egress::DenyAll()};
  const auto active = active_->Find(row.id);
  if (!active || active->connected() == nullptr) co_return view;
  const egress::Egress& egress = active->connected()->egress();
  view.policy = active->network().policy();
  view.denials = egress.denials();
  view.attempts = egress.attempts();
  auto dropped = co_await active->connected()->machine().DroppedPackets();
  // A machine that is ending has no count any more.
  if (dropped && *dropped > 0) view.denials.push_back(active->network().DroppedPackets(*dropped));
  co_return view;
}

std::shared_ptr<void> SessionsImpl::Use(const Scope& scope, const std::string& session) {
  auto active = records_->ActiveIfAny(scope, session);
  return active ? Session::Use(std::move(active)) : nullptr;
}

std::optional<store::Session> SessionsImpl::Running(const Scope& scope, const std::string& session) const {
  const auto active = records_->ActiveIfAny(scope, session);
  if (!active || active->phase() != Session::Phase::kRunning) return std::nullopt;
  return active->row();
}

}  // namespace sandbar::sandbox
