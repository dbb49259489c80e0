#include "spawner/server/disk_figures.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "protocol/disk_figures.h"

namespace sandbar::spawner {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPause(protocol::kFiguresMs), kMaxPause(5000);
constexpr size_t kShare = 20;  // one part in so many of the spawner's time

}  // namespace

void DiskFiguresTeller::Begin(uint64_t serial, Machine* machine) {
  const int ask = machine->figures_asked();
  if (ask < 0) return;
  auto watch = loop_->TryAdd(ask, EPOLLIN, [this, serial](uint32_t) { OnAsked(serial); });
  // It goes on with the figures that it has from its start.
  if (!watch) return log::Warn("disk figures of {}: {}", machine->id(), watch.error().message);
  Entry& entry = entries_[serial];
  entry.machine = machine;
  entry.asked = std::move(*watch);
}

void DiskFiguresTeller::OnAsked(uint64_t serial) {
  auto it = entries_.find(serial);
  if (it == entries_.end()) return;
  Entry& entry = it->second;
  const auto began = EventLoop::Clock::now();
  auto told = entry.machine->TellFigures();
  const auto took = EventLoop::Clock::now() - began;
  if (!told && !entry.failed) log::Warn("disk figures of {}: {}", entry.machine->id(), told.error().message);
  entry.failed = !told;
  entry.asked.Set(0);
  entry.rests = true;
  ++resting_;
  const auto pause = std::chrono::ceil<milliseconds>(kShare * resting_ * took);
  entry.again = loop_->After(std::clamp(pause, kPause, kMaxPause), [this, &entry] {
    entry.rests = false;
    --resting_;
    entry.asked.Set(EPOLLIN);
  });
}

void DiskFiguresTeller::End(uint64_t serial) {
  auto it = entries_.find(serial);
  if (it == entries_.end()) return;
  if (it->second.rests) --resting_;
  entries_.erase(it);
}

}  // namespace sandbar::spawner
