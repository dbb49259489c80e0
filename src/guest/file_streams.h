// The agent's side of file streams: relays frames between the daemon and one worker process per stream, with credit.
//
// Loop thread; owned by Agent. Streams belong to a connection and die with it. Each ends with exactly one End or
// FileError. A worker that makes no progress while nobody but itself is to blame is killed, unless it removes a tree:
// how long that may take is the daemon's to say.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "guest/connection.h"
#include "guest/file_worker.h"
#include "guest/loop.h"

namespace sandbar::guest {

class FileStreams {
 public:
  // `stall`: how long a worker may do nothing.
  FileStreams(Loop* loop, const ChildSetup* setup, Outlet* outlet, std::chrono::milliseconds stall)
      : loop_(loop), setup_(setup), outlet_(outlet), stall_(stall) {}

  // Ids are one sequence for files and dials; false after a violation.
  bool TakeId(uint32_t id);
  void Open(FileRequest request);
  void OnData(protocol::Data& data);
  void OnEnd(const protocol::End& end);
  void OnCredit(const protocol::Credit& credit);
  void OnAbort(const protocol::Abort& abort);

  // The connection is gone: kills all workers.
  void AbortAll();
  // The machine is stopping: ends what runs and refuses the rest, telling the daemon.
  void RefuseNew();
  void OnConnected() { last_id_ = 0; }
  bool OnReaped(pid_t pid);
  // The connection has room again.
  void Pump();

 private:
  struct Stream {
    uint32_t id = 0;
    pid_t pid = 0;
    bool upload = false;
    bool patient = false;  // the removal of a tree says nothing for long
    Fd up, down;
    Watch up_watch, down_watch;
    protocol::FrameDecoder<protocol::GuestFrame> decoder{true};
    std::optional<protocol::GuestFrame> held;   // decoded, waiting for credit
    uint64_t credit = protocol::kStreamWindow;  // what we may send
    uint64_t window = protocol::kStreamWindow;  // what the daemon may send
    uint64_t granted_later = 0;                 // consumed, not yet credited back
    std::string down_buffer;                    // from the daemon, for the worker
    size_t down_start = 0;
    bool down_ended = false;
    Timer stall;
  };

  // The live stream, or nothing for one that has ended; an id that never was is a violation.
  Stream* Find(uint32_t id);
  void OnUp(Stream& s);
  // Forwards what credit allows; false when the stream has ended (and is gone).
  bool Relay(Stream& s);
  bool Forward(Stream& s, protocol::GuestFrame& frame);
  void FlushDown(Stream& s);
  void Watchdog(Stream& s);
  void Fail(Stream& s, protocol::FileErrorKind kind, std::string message);
  void Close(uint32_t id);

  Loop* loop_;
  const ChildSetup* setup_;
  Outlet* outlet_;
  std::chrono::milliseconds stall_;
  uint32_t last_id_ = 0;
  bool refuse_new_ = false;
  std::map<uint32_t, std::unique_ptr<Stream>> streams_;
  std::unordered_map<pid_t, uint32_t> workers_;  // not yet reaped
};

}  // namespace sandbar::guest
