// Carries bytes between two sockets without copying them through this process: socket -> pipe -> socket with splice(2).
// A direction that has nothing to move holds no pipe. Single loop. The process must ignore SIGPIPE: splice(2) has no
// other way to be told.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "egress/bandwidth.h"
#include "egress/guarded_connect.h"

namespace sandbar::egress {

struct Pipe {
  Fd read, write;
};

// Pipes of one machine: empty ones are kept for the next burst, and the first few in use at once are large. Not all
// are: a user's pipes share one quota of pages, and beyond it the kernel makes tiny ones.
class PipeCache {
 public:
  Result<Pipe> Get();
  void Put(Pipe pipe, bool empty);
  // Closes what is kept; called now and then, so that an idle machine holds none.
  void Trim() { free_.clear(); }

 private:
  std::vector<Pipe> free_;
  size_t in_use_ = 0;
};

// The state that both directions of a connection share.
struct RelayState {
  PipeCache* pipes = nullptr;
  Bandwidth* bandwidth = nullptr;
  std::chrono::steady_clock::time_point last_activity = std::chrono::steady_clock::now();
  bool cut = false;  // set by the owner: not one more byte
};

// Until `from` ends (then `to` is shut for writing) or either breaks (an error). Adds to *bytes.
Task<> SpliceOneWay(Stream* from, Stream* to, uint64_t* bytes, RelayState* relay);

}  // namespace sandbar::egress
