#include "base/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace sandbar {

FdWatch& FdWatch::operator=(FdWatch&& o) noexcept {
  if (this != &o) {
    Reset();
    loop_ = std::exchange(o.loop_, nullptr);
    token_ = o.token_;
  }
  return *this;
}

void FdWatch::Reset() {
  EventLoop* loop = std::exchange(loop_, nullptr);
  if (loop == nullptr) return;
  auto it = loop->entries_.find(token_);
  // Deleting may find the fd closed already; the kernel has then forgotten it by itself.
  loop->Control(it->second, token_, 0);
  loop->entries_.erase(it);
}

void FdWatch::Set(uint32_t events) {
  if (loop_ != nullptr) SB_CHECK(loop_->Control(loop_->entries_.at(token_), token_, events) == 0 || events == 0);
}

LoopTimer& LoopTimer::operator=(LoopTimer&& o) noexcept {
  if (this != &o) {
    Reset();
    loop_ = std::exchange(o.loop_, nullptr);
    key_ = std::move(o.key_);
  }
  return *this;
}

void LoopTimer::Reset() {
  if (EventLoop* loop = std::exchange(loop_, nullptr)) loop->timers_.erase(key_);
}

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  SB_CHECK(epoll_);
}

FdWatch EventLoop::Add(int fd, uint32_t events, std::function<void(uint32_t)> on_ready) {
  auto watch = TryAdd(fd, events, std::move(on_ready));
  SB_CHECK(watch);
  return std::move(*watch);
}

Result<FdWatch> EventLoop::TryAdd(int fd, uint32_t events, std::function<void(uint32_t)> on_ready) {
  const uint64_t token = next_token_++;
  Entry& entry = entries_[token];
  entry.fd = fd;
  entry.on_ready = std::move(on_ready);
  if (const int error = Control(entry, token, events); error != 0) {
    entries_.erase(token);
    return FailErrno("epoll", error);
  }
  return FdWatch(this, token);
}

int EventLoop::Control(Entry& entry, uint64_t token, uint32_t events) {
  if (entry.events == events) return 0;
  int op = EPOLL_CTL_MOD;
  if (entry.events == 0) op = EPOLL_CTL_ADD;
  if (events == 0) op = EPOLL_CTL_DEL;
  epoll_event ev{};
  ev.events = events;
  ev.data.u64 = token;
  const int error = ::epoll_ctl(epoll_.get(), op, entry.fd, &ev) == 0 ? 0 : errno;
  entry.events = events;
  return error;
}

LoopTimer EventLoop::After(std::chrono::milliseconds d, std::function<void()> on_time) {
  LoopTimer::Key key{Clock::now() + d, next_token_++};
  timers_.emplace(key, std::move(on_time));
  return LoopTimer(this, key);
}

int EventLoop::NextTimeoutMs(int timeout_ms) const {
  if (timers_.empty()) return timeout_ms;
  auto left = timers_.begin()->first.first - Clock::now();
  const int64_t ms = std::clamp<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 0, 3600 * 1000);
  return timeout_ms < 0 ? static_cast<int>(ms) : static_cast<int>(std::min<int64_t>(ms, timeout_ms));
}

void EventLoop::RunTimers() {
  auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    // Taken out before the call: its owner's Reset() then finds nothing, which is fine.
    auto node = timers_.extract(timers_.begin());
    node.mapped()();
  }
}

size_t EventLoop::RunOnce(int timeout_ms) {
  std::array<epoll_event, 64> events{};
  int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), NextTimeoutMs(timeout_ms));
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
  return n > 0 ? static_cast<size_t>(n) : 0;
}

void EventLoop::Run(const std::function<bool()>& done) {
  while (!done()) RunOnce(-1);
}

}  // namespace sandbar
