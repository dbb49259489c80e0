// The event loop of the guest agent and of the spawner: epoll and timers, single-threaded, plain callbacks.
//
// It is not Asio: both programs fork processes that share their memory image and may never throw, and the agent has to
// stay below 3 MiB. Callbacks may add, change and destroy watches and timers freely, their own included.
// A forked child must never touch an EventLoop nor run the destructors of anything that holds an FdWatch, because the
// child shares the epoll instance with its parent. Children leave by exec or _exit only.
//
//   EventLoop loop;
//   FdWatch w = loop.Add(fd, EPOLLIN, [&](uint32_t events) { … });  // destroying w removes it; fd stays the caller's
//   LoopTimer t = loop.After(50ms, [&] { … });
//   loop.Run([&] { return done; });
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar {

class EventLoop;

// Destroy or reset the watch before you close its descriptor: a forked child may hold a copy of the descriptor, and
// epoll goes on reporting it then.
class FdWatch {
 public:
  FdWatch() = default;
  FdWatch(FdWatch&& o) noexcept : loop_(std::exchange(o.loop_, nullptr)), token_(o.token_) {}
  FdWatch& operator=(FdWatch&& o) noexcept;
  ~FdWatch() { Reset(); }
  void Reset();
  // 0 takes the fd out of epoll altogether: with an empty mask the kernel would still report hang-ups, for ever.
  void Set(uint32_t events);

 private:
  friend class EventLoop;
  FdWatch(EventLoop* loop, uint64_t token) : loop_(loop), token_(token) {}
  EventLoop* loop_ = nullptr;
  uint64_t token_ = 0;
};

class LoopTimer {
 public:
  using Clock = std::chrono::steady_clock;
  LoopTimer() = default;
  LoopTimer(LoopTimer&& o) noexcept : loop_(std::exchange(o.loop_, nullptr)), key_(std::move(o.key_)) {}
  LoopTimer& operator=(LoopTimer&& o) noexcept;
  ~LoopTimer() { Reset(); }
  void Reset();

 private:
  friend class EventLoop;
  using Key = std::pair<Clock::time_point, uint64_t>;
  LoopTimer(EventLoop* loop, Key key) : loop_(loop), key_(key) {}
  EventLoop* loop_ = nullptr;
  Key key_;
};

class EventLoop {
 public:
  using Clock = LoopTimer::Clock;
  EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Aborts when the kernel refuses the watch.
  FdWatch Add(int fd, uint32_t events, std::function<void(uint32_t)> on_ready);
  // Returns the error when the kernel refuses the watch.
  Result<FdWatch> TryAdd(int fd, uint32_t events, std::function<void(uint32_t)> on_ready);
  LoopTimer After(std::chrono::milliseconds d, std::function<void()> on_time);
  // Runs until `done` says so (asked after every round).
  void Run(const std::function<bool()>& done);
  // One round: waits for an event, for the next timer, or for `timeout_ms` (-1: no limit), then calls what is ready.
  // Returns the number of descriptors that were ready.
  size_t RunOnce(int timeout_ms);

 private:
  friend class FdWatch;
  friend class LoopTimer;
  struct Entry {
    int fd = -1;
    uint32_t events = 0;
    std::function<void(uint32_t)> on_ready;
  };
  // The errno; 0 when the kernel took the change.
  int Control(Entry& entry, uint64_t token, uint32_t events);
  int NextTimeoutMs(int timeout_ms) const;
  void RunTimers();

  Fd epoll_;
  uint64_t next_token_ = 1;
  std::unordered_map<uint64_t, Entry> entries_;
  std::map<LoopTimer::Key, std::function<void()>> timers_;
};

}  // namespace sandbar
