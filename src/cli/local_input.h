// Reads this program's standard input without blocking the loop. A thread reads: a pipe or terminal is shared with
// other programs, so its descriptor must not become non-blocking, and a regular file can only be read by waiting.
// It reads ahead 512 KiB at most. Everything but the thread is of one loop.
//
//   LocalInput input(ex, 0, [&] { wake.Notify(); });     // called on the loop when Take or ended may say something new
//   std::string bytes = input.Take(64 << 10);            // empty: nothing now
//   if (bytes.empty() && input.ended()) …
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "async/task.h"

namespace sandbar::cli {

// Whether there can be anything to read: the descriptor is open and is not /dev/null.
bool IsReadable(int fd);

class LocalInput {
 public:
  // `fd` outlives the program.
  LocalInput(const asio::any_io_executor& ex, int fd, std::function<void()> changed);
  LocalInput(const LocalInput&) = delete;
  LocalInput& operator=(const LocalInput&) = delete;
  ~LocalInput();
  std::string Take(size_t most);
  // Everything was taken, and nothing more comes.
  bool ended() const;

 private:
  struct State;
  static void Read(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace sandbar::cli
