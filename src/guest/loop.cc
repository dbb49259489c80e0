#include "guest/loop.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

namespace sandbar::guest {

Watch& Watch::operator=(Watch&& o) noexcept {
  if (this != &o) {
    Reset();
    loop_ = std::exchange(o.loop_, nullptr);
    token_ = o.token_;
  }
  return *this;
}

void Watch::Reset() {
  Loop* loop = std::exchange(loop_, nullptr);
  if (loop == nullptr) return;
  auto it = loop->entries_.find(token_);
  loop->Control(it->second, token_, 0);
  loop->entries_.erase(it);
}

void Watch::Set(uint32_t events) {
  if (loop_ != nullptr) loop_->Control(loop_->entries_.at(token_), token_, events);
}

Timer& Timer::operator=(Timer&& o) noexcept {
  if (this != &o) {
    Reset();
    loop_ = std::exchange(o.loop_, nullptr);
    key_ = std::move(o.key_);
  }
  return *this;
}

void Timer::Reset() {
  if (Loop* loop = std::exchange(loop_, nullptr)) loop->timers_.erase(key_);
}

Loop::Loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  SB_CHECK(epoll_);
}

Watch Loop::Add(int fd, uint32_t events, std::function<void(uint32_t)> on_ready) {
  uint64_t token = next_token_++;
  Entry& entry = entries_[token];
  entry.fd = fd;
  entry.on_ready = std::move(on_ready);
  Control(entry, token, events);
  return Watch(this, token);
}

void Loop::Control(Entry& entry, uint64_t token, uint32_t events) {
  if (entry.events == events) return;
  int op = EPOLL_CTL_MOD;
  if (entry.events == 0) op = EPOLL_CTL_ADD;
  if (events == 0) op = EPOLL_CTL_DEL;
  epoll_event ev{};
  ev.events = events;
  ev.data.u64 = token;
  // Deleting may find the fd closed already; the kernel has then forgotten it by itself.
  int r = ::epoll_ctl(epoll_.get(), op, entry.fd, &ev);
  SB_CHECK(r == 0 || op == EPOLL_CTL_DEL);
  entry.events = events;
}

Timer Loop::After(std::chrono::milliseconds d, std::function<void()> on_time) {
  Timer::Key key{Clock::now() + d, next_token_++};
  timers_.emplace(key, std::move(on_time));
  return Timer(this, key);
}

int Loop::NextTimeoutMs() const {
  if (timers_.empty()) return -1;
  auto left = timers_.begin()->first.first - Clock::now();
  auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  if (ms < 0) return 0;
  return static_cast<int>(std::min<int64_t>(ms, 3600 * 1000));
}

void Loop::RunTimers() {
  auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    // Taken out before the call: its owner's Reset() then finds nothing, which is fine.
    auto node = timers_.extract(timers_.begin());
    node.mapped()();
  }
}

void Loop::Run(const std::function<bool()>& done) {
  std::array<epoll_event, 64> events{};
  while (!done()) {
    int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), NextTimeoutMs());
    SB_CHECK(n >= 0 || errno == EINTR);
    for (int i = 0; i < n; ++i) {
      const auto& ev = events.at(static_cast<size_t>(i));
      uint64_t token = ev.data.u64;  // a copy: epoll_event is packed
      // An earlier callback of this round may have removed the watch: its token is then unknown.
      auto it = entries_.find(token);
      if (it == entries_.end()) continue;
      auto on_ready = it->second.on_ready;  // a copy: the callback may destroy its own watch
      on_ready(ev.events);
    }
    RunTimers();
  }
}

}  // namespace sandbar::guest
