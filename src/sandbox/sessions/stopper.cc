#include "sandbox/sessions/stopper.h"

#include "base/log.h"

namespace sandbar::sandbox {

namespace {

constexpr std::chrono::seconds kKeepRetry{5};

}  // namespace

std::shared_ptr<Session> Stopper::Add(store::Session row, std::map<std::string, std::string> env) {
  auto stop = [this, id = row.id](StopCause cause, std::string why) {
    if (!core_->closing) Request(id, cause, std::move(why));
  };
  auto session = std::make_shared<Session>(core_, std::move(row), std::move(env), std::move(stop));
  active_->Add(session);
  return session;
}

SharedStop Stopper::Request(const std::string& session, StopCause cause, std::string why, Keep keep) {
  ActiveSession* active = active_->Entry(session);
  if (active == nullptr) return nullptr;
  if (!active->stop) {
    active->stop = std::make_shared<SharedResult<store::Sandbox>>(core_->ex);
    core_->tasks.Spawn(Produce(active->stop, Stop(active->session, cause, std::move(why), std::move(keep))));
  }
  return active->stop;
}

Task<store::Sandbox> Stopper::Stop(std::shared_ptr<Session> session, StopCause cause, std::string why, Keep keep) {
  auto started = co_await session->started()->Wait();
  if (!started) co_return std::unexpected(std::move(started).error());
  co_await session->BeginStop(cause, std::move(why), keep);
  // A shutdown cancelled the stop: the row says "stopping", or the sandbox has a pending deletion, and the next start
  // finishes it.
  if (core_->closing) co_return Fail(Code::kCancelled, "the server is shutting down");
  co_await session->Drain(cause != StopCause::kLost);
  if (core_->closing) co_return Fail(Code::kCancelled, "the server is shutting down");
  auto ended = co_await session->End(cause, keep);
  while (!ended && session->phase() != Session::Phase::kEnded && !core_->closing) {
    // Most likely the disk is full. The files are worth more than the name being free soon.
    log::Error("stop of {}: {}; trying again", session->row().id, ended.error().message);
    auto slept = co_await Sleep(kKeepRetry);
    if (!slept) break;
    ended = co_await session->End(cause, keep);
  }
  if (!ended) log::Error("stop of {}: {}", session->row().id, ended.error().message);
  if (core_->closing) co_return ended;
  active_->Remove(session->row().id);
  housekeeper_->Wake();
  layers_->Seal();
  co_return ended;
}

Task<> Stopper::StopAll() {
  std::vector<SharedStop> stops;
  for (const auto& session : active_->All())
    stops.push_back(Request(session->row().id, StopCause::kRequested, "server stopped"));
  Result<> out;
  for (auto& stop : stops) {
    auto r = co_await stop->Wait();
    if (!r) out = std::unexpected(std::move(r).error());
  }
  co_return out;
}

}  // namespace sandbar::sandbox
