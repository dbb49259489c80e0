// Carries bytes between two sockets without copying them through this process: socket -> pipe -> socket with splice(2).
// A direction that has nothing to move holds no pipe. Single loop. The process must ignore SIGPIPE: splice(2) has no
// other way to be told.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "net/bandwidth.h"
#include "net/guarded_connect.h"

namespace sandbar::net {

struct Pipe {
  Fd read, write;
};

// Empty pipes of one machine, kept for the next burst.
class PipeCache {
 public:
  Result<Pipe> Get();
  void Put(Pipe pipe);  // must be empty

 private:
  std::vector<Pipe> free_;
};

// What both directions of a connection share.
struct Carriage {
  PipeCache* pipes = nullptr;
  Bandwidth* bandwidth = nullptr;
  std::chrono::steady_clock::time_point last_activity = std::chrono::steady_clock::now();
  bool cut = false;  // set by the owner: not one more byte
};

// Until `from` ends (then `to` is shut for writing) or either breaks (an error). Adds to *bytes.
Task<> SpliceOneWay(Stream* from, Stream* to, uint64_t* bytes, Carriage* carriage);

}  // namespace sandbar::net
