// Tells class 1 machines how large their disks are and what is free on them, when they ask (machines/figures_page.h).
// A machine gets an answer at once, and then no other one for kFiguresMs, or for longer while many machines ask:
// however often their programs ask, all answers together take a twentieth of the spawner's time. Single thread; no call
// waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/event_loop.h"
#include "spawner/machines/machine.h"

namespace sandbar::spawner {

class DiskFiguresTeller {
 public:
  explicit DiskFiguresTeller(EventLoop* loop) : loop_(loop) {}

  // The machine has started. It outlives the call to End.
  void Begin(uint64_t serial, Machine* machine);
  // The machine is being destroyed.
  void End(uint64_t serial);

 private:
  struct Entry {
    Machine* machine = nullptr;
    bool failed = false;  // the last answer; said once
    FdWatch asked;
    bool rests = false;  // it was answered a moment ago
    LoopTimer again;
  };
  void OnAsked(uint64_t serial);

  EventLoop* loop_;
  std::map<uint64_t, Entry> entries_;  // by the machine's serial
  size_t resting_ = 0;
};

}  // namespace sandbar::spawner
