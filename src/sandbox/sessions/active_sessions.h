// The sessions that have a machine, or are about to: from before the machine is booted until its end is on record.
// Single loop; owned by the domain.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sandbox/core.h"
#include "sandbox/sessions/session.h"
#include "sandbox/shared_result.h"

namespace sandbar::sandbox {

// The end of a session. All callers that ask for a stop wait for the same one.
using SharedStop = std::shared_ptr<SharedResult<store::Sandbox>>;

struct ActiveSession {
  std::shared_ptr<Session> session;
  SharedStop stop;  // set once a stop is under way
};

class ActiveSessions {
 public:
  explicit ActiveSessions(Core* core) : core_(core) {}
  ActiveSessions(const ActiveSessions&) = delete;
  ActiveSessions& operator=(const ActiveSessions&) = delete;

  // Null when the session is not active.
  std::shared_ptr<Session> Find(const std::string& id) const;
  ActiveSession* Entry(const std::string& id);
  bool Has(const std::string& id) const { return sessions_.contains(id); }

  // A place among the server's `max_running` sessions, for as long as the result lives: for a start whose session is
  // not added yet. kTooMany when there is none.
  Result<std::shared_ptr<void>> Reserve();
  void Add(std::shared_ptr<Session> session);
  void Remove(const std::string& id) { sessions_.erase(id); }

  std::vector<std::shared_ptr<Session>> All() const;
  std::vector<std::shared_ptr<Session>> Running() const;
  // At shutdown: detaches from every machine. The machines go on.
  asio::awaitable<void> Close();

 private:
  Core* core_;
  std::map<std::string, ActiveSession> sessions_;
  size_t reserved_ = 0;
};

}  // namespace sandbar::sandbox
