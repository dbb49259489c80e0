#include "sandbox/sessions/active_sessions.h"

#include <fmt/format.h>

#include <utility>

namespace sandbar::sandbox {

std::shared_ptr<Session> ActiveSessions::Find(const std::string& id) const {
  auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second.session;
}

ActiveSession* ActiveSessions::Entry(const std::string& id) {
  auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

Result<std::shared_ptr<void>> ActiveSessions::Reserve() {
  if (sessions_.size() + reserved_ >= core_->config.max_running) {
    return Fail(Code::kTooMany, fmt::format("{} sandboxes are running, the server's limit (max_running) is {}",
                                            sessions_.size(), core_->config.max_running));
  }
  ++reserved_;
  return std::shared_ptr<void>(this, [this](void*) { --reserved_; });
}

void ActiveSessions::Add(std::shared_ptr<Session> session) {
  const store::Session& row = session->row();
  core_->logs.Own(row.id, row.team + "/" + row.project);
  const std::string id = row.id;
  sessions_[id] = ActiveSession{std::move(session), nullptr};
}

std::vector<std::shared_ptr<Session>> ActiveSessions::All() const {
  std::vector<std::shared_ptr<Session>> all;
  for (const auto& [id, active] : sessions_) all.push_back(active.session);
  return all;
}

std::vector<std::shared_ptr<Session>> ActiveSessions::Running() const {
  auto running = All();
  std::erase_if(running, [](const auto& s) { return s->phase() != Session::Phase::kRunning; });
  return running;
}

asio::awaitable<void> ActiveSessions::Close() {
  auto sessions = std::exchange(sessions_, {});
  for (auto& [id, active] : sessions) co_await active.session->Detach();
}

}  // namespace sandbar::sandbox
