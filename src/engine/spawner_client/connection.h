// One connection to the spawner: requests in flight by tag, exits by machine. Single loop; no coroutine of its own, so
// it needs no joining: the loop's handlers share ownership with the engine and its machines, and Close() ends it for
// all.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "base/fd.h"
#include "protocol/spawner_messages.h"

namespace sandbar::engine {

inline constexpr std::chrono::seconds kAnswerLimit{60};
// For what takes as long as there is memory to write or read, or files to convert.
inline constexpr std::chrono::seconds kMemoryLimit{600};

struct SpawnerReply {
  protocol::SpawnerResponse body;
  std::vector<Fd> fds;
};

// The end of one machine, as seen by those who wait for it. Shared by the Machine and, weakly, by the connection.
struct ExitState {
  explicit ExitState(const asio::any_io_executor& ex) : changed(ex) {}
  std::optional<protocol::ExitedEvent> exited;
  bool lost = false;  // the spawner is gone
  Event changed;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  static Result<std::shared_ptr<Connection>> Open(const asio::any_io_executor& ex, const std::string& path);
  // Use Open.
  Connection(const asio::any_io_executor& ex, Fd socket);

  // Before any other call: finds the highest version that the spawner speaks too. kUnsupported: there is none.
  Task<protocol::HelloResp> Hello();
  // Before a request that came after the oldest version: kConflict when the spawner, which may be older than the
  // server, does not know it.
  Result<> Require(const protocol::Feature& feature) const;
  // kUnavailable when the spawner is gone, kTimeout when it does not answer; its own errors as they are.
  Task<SpawnerReply> Call(protocol::SpawnerRequest request, std::chrono::seconds limit = kAnswerLimit);
  // Register before the machine can have ended, i.e. before Boot or Attach is sent.
  std::shared_ptr<ExitState> Track(const std::string& machine);
  void MarkExited(const std::string& machine);
  void Close(std::string why);
  const asio::any_io_executor& executor() const { return ex_; }

 private:
  struct Pending {
    explicit Pending(const asio::any_io_executor& ex) : wake(ex) {}
    asio::steady_timer wake;
    std::optional<Result<SpawnerReply>> result;
  };

  void Receive();
  void OnReadable();
  void Flush();
  void OnResponse(protocol::TaggedResponse response, std::vector<Fd> fds);

  asio::any_io_executor ex_;
  asio::posix::stream_descriptor socket_;
  std::string closed_;  // why; empty while open
  uint32_t version_ = 0;
  uint32_t next_tag_ = 1;
  // Shared with the coroutine that waits: whichever of the two ends last frees it.
  std::map<uint32_t, std::shared_ptr<Pending>> pending_;
  std::deque<std::string> out_;
  bool writing_ = false;
  std::map<std::string, std::weak_ptr<ExitState>> exits_;
};

}  // namespace sandbar::engine
