#include "spawner/server/disk_figures.h"

#include <sys/epoll.h>

#include <chrono>

#include "base/log.h"
#include "protocol/disk_figures.h"

namespace sandbar::spawner {

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
  if (auto told = entry.machine->TellFigures(); !told)
    log::Warn("disk figures of {}: {}", entry.machine->id(), told.error().message);
  entry.asked.Set(0);
  entry.again = loop_->After(std::chrono::milliseconds(protocol::kFiguresMs), [this, serial] {
    if (auto at = entries_.find(serial); at != entries_.end()) at->second.asked.Set(EPOLLIN);
  });
}

}  // namespace sandbar::spawner
