// The daemon's connection as the agent sees it: decoded frames in, a bounded queue of encoded frames out.
//
// Loop thread; owned by Agent, which feeds it readiness and drops it after it says closed(). It never blocks, and it
// stops reading while its peer does not read. A peer that breaks the protocol is closed. On a stream
// (protocol/guest_frames.h) closing is only the end of this object: whoever holds the other end stays connected.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/fd.h"
#include "guest/loop.h"
#include "protocol/guest_frames.h"

namespace sandbar::guest {

// Where the parts of the agent send frames to. live(): a daemon has said hello. full(): hold bulk data back for now.
class Outlet {
 public:
  virtual ~Outlet() = default;
  virtual bool live() const = 0;
  virtual bool full() const = 0;
  virtual uint64_t generation() const = 0;  // of the live connection; a later one has a higher number
  virtual bool Has(const protocol::Feature& feature) const = 0;  // the daemon of the live connection
  virtual void Send(const protocol::GuestFrame& frame) = 0;
  // The daemon broke the protocol: ends the connection.
  virtual void Violation(const char* what) = 0;
};

class Connection {
 public:
  using OnFrame = std::function<void(protocol::HostFrame&)>;
  enum class Kind { kSocket, kStream };
  Connection(Loop& loop, Fd fd, Kind kind, OnFrame on_frame, std::function<void()> on_drained);

  void Send(const protocol::GuestFrame& frame);
  size_t queued() const { return out_.size() - out_start_; }
  bool closed() const { return closed_; }
  bool hung_up() const { return hung_up_; }  // closed, and by the other side
  void Close();
  // Close, after a violation.
  void Refuse();
  // Nobody is left to hear what is queued.
  void DropQueue();

 private:
  void OnReady(uint32_t events);
  void ReadSome();
  void DecodeSome();
  void Flush();
  void Arm();

  Fd fd_;
  Kind kind_;
  OnFrame on_frame_;
  std::function<void()> on_drained_;
  protocol::FrameDecoder<protocol::HostFrame> decoder_;
  std::string out_;
  size_t out_start_ = 0;
  bool closed_ = false;
  bool hung_up_ = false;
  Watch watch_;
};

}  // namespace sandbar::guest
