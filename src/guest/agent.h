// sandbar-guest: PID 1 of a machine. Reaps, runs commands, serves files, and speaks protocol/guest_frames.h with
// whichever daemon connected last. Single thread; owns everything below it.
//
// Nothing here trusts a name in the guest's file system: what the agent needs for itself it opened before any guest
// code ran. It installs no signal handlers, so that guest root's signals to PID 1 are dropped by the kernel.
//
//   AgentOptions options{…};
//   Agent agent(std::move(options));
//   agent.Run();    // does not return
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "guest/commands.h"
#include "guest/connection.h"
#include "guest/dials.h"
#include "guest/elevations.h"
#include "guest/file_streams.h"
#include "guest/launch.h"
#include "guest/loop.h"
#include "guest/quiesce.h"
#include "guest/statfs_service.h"

namespace sandbar::guest {

struct AgentOptions {
  Fd listener;  // a listening unix stream socket
  Fd stream;    // or one byte stream that all daemons use in turn; the agent ends when a socket here is closed
  std::vector<Fd> join_fds;              // see ChildSetup
  std::string elevated;                  // see ChildSetup
  std::string elevate_at;                // where processes ask for it: a socket's path; empty: nowhere
  bool own_kernel = false;               // the machine is a virtual one
  Fd written;                            // see ChildSetup
  std::string machine_key;               // see protocol::HelloAck
  std::optional<os::StatfsDuty> statfs;  // the agent answers statfs in the machine
  std::chrono::milliseconds worker_stall{20000};
};

class Agent : private Outlet {
 public:
  explicit Agent(AgentOptions options);
  [[noreturn]] void Run();

 private:
  bool live() const override { return hello_ && connection_ && !connection_->closed(); }
  bool full() const override;
  uint64_t generation() const override { return generation_; }
  bool Has(const protocol::Feature& feature) const override { return version_ >= feature.since; }
  void Send(const protocol::GuestFrame& frame) override;
  void Violation(const char* what) override;

  void OnAccept();
  void OpenStream();
  void Serve(Fd fd, Connection::Kind kind);
  void OnFrame(protocol::HostFrame& frame);
  void OnHello(const protocol::Hello& hello);
  void Dispatch(protocol::HostFrame& frame);
  void Rekey(const protocol::Rekey& rekey);
  void OnDrained();
  void EndSession();
  void DropConnection();
  void Reap();

  AgentOptions options_;
  ChildSetup setup_;
  Loop loop_;
  std::unique_ptr<Connection> connection_;
  bool hello_ = false;
  uint32_t version_ = 0;  // that the daemon of this session speaks too
  uint64_t generation_ = 0;
  Commands commands_;
  FileStreams files_;
  Dials dials_;
  Quiescer quiescer_;
  Elevations elevations_;
  StatfsService statfs_;
  Fd children_;  // signalfd
  Watch children_watch_, listen_watch_;
  Timer reap_again_, accept_again_;
};

}  // namespace sandbar::guest
