// The agent's event loop: epoll and timers, single-threaded, plain callbacks.
//
// Not Asio: PID 1 forks workers that share its memory image, must stay under 3 MiB and may never throw; a hundred lines
// that we can read whole are the safer choice here. Callbacks may add, change and destroy watches and timers freely.
// A forked child must never touch a Loop or run the destructors of anything that holds a Watch: the epoll instance is
// shared with the parent. Children leave by exec or _exit only.
//
//   Loop loop;
//   Watch w = loop.Add(fd, EPOLLIN, [&](uint32_t events) { … });   // destroying w removes it; fd stays the caller's
//   Timer t = loop.After(50ms, [&] { … });
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

namespace sandbar::guest {

using Clock = std::chrono::steady_clock;

class Loop;

class Watch {
 public:
  Watch() = default;
  Watch(Watch&& o) noexcept : loop_(std::exchange(o.loop_, nullptr)), token_(o.token_) {}
  Watch& operator=(Watch&& o) noexcept;
  ~Watch() { Reset(); }
  void Reset();
  // 0 takes the fd out of epoll altogether: with an empty mask the kernel would still report hang-ups, for ever.
  void Set(uint32_t events);

 private:
  friend class Loop;
  Watch(Loop* loop, uint64_t token) : loop_(loop), token_(token) {}
  Loop* loop_ = nullptr;
  uint64_t token_ = 0;
};

class Timer {
 public:
  Timer() = default;
  Timer(Timer&& o) noexcept : loop_(std::exchange(o.loop_, nullptr)), key_(std::move(o.key_)) {}
  Timer& operator=(Timer&& o) noexcept;
  ~Timer() { Reset(); }
  void Reset();

 private:
  friend class Loop;
  using Key = std::pair<Clock::time_point, uint64_t>;
  Timer(Loop* loop, Key key) : loop_(loop), key_(key) {}
  Loop* loop_ = nullptr;
  Key key_;
};

class Loop {
 public:
  Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  Watch Add(int fd, uint32_t events, std::function<void(uint32_t)> on_ready);
  Timer After(std::chrono::milliseconds d, std::function<void()> on_time);
  // Runs until `done` says so (asked after every round).
  void Run(const std::function<bool()>& done);

 private:
  friend class Watch;
  friend class Timer;
  struct Entry {
    int fd = -1;
    uint32_t events = 0;
    std::function<void(uint32_t)> on_ready;
  };
  void Control(Entry& entry, uint64_t token, uint32_t events);
  int NextTimeoutMs() const;
  void RunTimers();

  Fd epoll_;
  uint64_t next_token_ = 1;
  std::unordered_map<uint64_t, Entry> entries_;
  std::map<Timer::Key, std::function<void()>> timers_;
};

}  // namespace sandbar::guest
