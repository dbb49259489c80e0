// Connections to servers in the machine, for engines whose host cannot reach its loopback: the agent connects, and
// relays bytes as Data frames with credit both ways (protocol/guest_frames.h, Dial).
//
// Loop thread; owned by Agent. They belong to a session and die with it. Nothing is buffered beyond one window.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/fd.h"
#include "guest/connection.h"
#include "guest/loop.h"

namespace sandbar::guest {

class Dials {
 public:
  Dials(Loop* loop, Outlet* outlet) : loop_(loop), outlet_(outlet) {}

  void Open(const protocol::Dial& request);
  // False: not one of ours.
  bool Take(protocol::Data& data);
  bool Take(const protocol::End& end);
  bool Take(const protocol::Credit& credit);
  bool Take(const protocol::Abort& abort);

  void AbortAll() { dials_.clear(); }
  // The connection has room again.
  void Pump();

 private:
  struct Dial {
    ~Dial();
    uint32_t id = 0;
    uint16_t port = 0;
    bool ipv6 = false;
    bool connected = false;
    bool server_ended = false;                  // our End went out
    bool host_ended = false;                    // its End came
    bool shut = false;                          // and the server was told
    uint64_t credit = protocol::kStreamWindow;  // what we may send
    uint64_t window = protocol::kStreamWindow;  // what the daemon may send
    uint64_t granted_later = 0;                 // passed on, not yet credited back
    std::string down;                           // from the daemon, for the server
    size_t down_start = 0;
    Fd fd;
    Watch watch;
  };

  Dial* Find(uint32_t id);
  bool Connect(Dial& d);
  void OnReady(Dial& d);
  // These return false when the dial has ended and is gone.
  bool Connected(Dial& d);
  bool Read(Dial& d);
  bool Write(Dial& d);
  bool Fail(Dial& d, int error);
  void Arm(Dial& d);

  Loop* loop_;
  Outlet* outlet_;
  std::map<uint32_t, std::unique_ptr<Dial>> dials_;
};

}  // namespace sandbar::guest
