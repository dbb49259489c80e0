// The spawner's side of the daemon's connection: the listening socket, the one connection at a time, and the replies
// that the daemon has not read yet. A newer connection replaces the older one. Single thread; no call waits.
//
//   DaemonConnection daemon(&loop, [&](TaggedRequest request) { … });
//   SB_TRYV(daemon.Listen(run_dir, daemon_uid, daemon_gid));
//   auto owed = daemon.Owe(request.tag);          // to answer later
//   daemon.ReplyTo(owed, OkResp{});               // dropped when that connection is gone
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"
#include "base/result.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

ErrorResp ToResponse(const Error& error);

class DaemonConnection {
 public:
  // A reply that the spawner owes: for which request, of which connection.
  struct Owed {
    uint32_t tag = 0;
    uint64_t connection = 0;
  };
  using OnRequest = std::function<void(TaggedRequest)>;

  DaemonConnection(EventLoop* loop, OnRequest on_request) : loop_(loop), on_request_(std::move(on_request)) {}
  DaemonConnection(const DaemonConnection&) = delete;
  DaemonConnection& operator=(const DaemonConnection&) = delete;

  // The socket `spawner.sock` in the directory `run` accepts connections when this returns, of root and of `uid` only.
  Result<> Listen(int run, uid_t uid, gid_t gid);
  bool connected() const { return static_cast<bool>(peer_); }
  bool ever_connected() const { return connection_ > 0; }

  Owed Owe(uint32_t tag) const { return {tag, connection_}; }
  // Whether the connection to which this reply is owed is still there.
  bool Awaits(const Owed& owed) const { return owed.connection == connection_; }
  void Reply(uint32_t tag, Response body, std::vector<Fd> fds = {});
  void ReplyTo(const Owed& owed, Response body);
  void ReplyError(uint32_t tag, const Error& error) { Reply(tag, ToResponse(error)); }

 private:
  struct Outgoing {
    std::string bytes;
    std::vector<Fd> fds;
  };
  void OnAccept();
  void OnPeer(uint32_t events);
  void Read();
  void Flush();
  void Disconnect(const char* why);

  EventLoop* loop_;
  OnRequest on_request_;
  uid_t uid_ = 0;
  Fd listener_, peer_;
  FdWatch listener_watch_, peer_watch_;
  uint64_t connection_ = 0;  // counts connections
  std::deque<Outgoing> out_;
};

}  // namespace sandbar::spawner
