// A streamed answer that never falls silent: one writer at a time, a filler whenever nothing was sent for a while, and
// an end as soon as the client is gone. Lives in the handler's frame. Loop thread.
//
//   KeepAliveStream stream(call->exchange, "\n", 15s, ex);
//   co_return co_await stream.Run(Pump(&stream, …));   // Pump writes with stream.Write()
#pragma once

#include <chrono>
#include <string>

#include "async/task.h"
#include "http/server.h"

namespace sandbar::api {

class KeepAliveStream {
 public:
  // `filler` must mean nothing to the reader: an empty line in NDJSON, a space before JSON.
  KeepAliveStream(http::HttpExchange* exchange, std::string filler, std::chrono::milliseconds silence,
                  const asio::any_io_executor& ex)
      : exchange_(exchange), filler_(std::move(filler)), silence_(silence), free_(ex) {}

  // Waits for its turn, then until the socket took the bytes.
  Task<> Write(std::string bytes);
  // Runs `pump` to its end with fillers beside it. kClosed when the client went away first: the pump is cancelled.
  Task<> Run(Task<> pump);

 private:
  Task<> Fill();

  http::HttpExchange* exchange_;
  std::string filler_;
  std::chrono::milliseconds silence_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  bool busy_ = false;
  Event free_;
};

}  // namespace sandbar::api
