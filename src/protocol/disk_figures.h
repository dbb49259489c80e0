// How large the disks of a class 1 machine are and what is free on them: one page of memory that the spawner writes and
// the agent's process for statfs (guest/statfs_server.h) reads. Both run on one host and come from one release: a
// spawner starts machines with its own copy of the agent. No I/O here.
//
//   WriteFigures(*page, figures, os::BootTimeMs());       // the spawner, its only writer
//   std::optional<FiguresReading> r = ReadFigures(*page);
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace sandbar::protocol {

// Of the machine's root (first) or of one drive, in the order of ConfigureReq::mounts. Bytes.
struct DiskFigures {
  uint64_t total = 0;
  uint64_t free = 0;       // of the limit
  uint64_t available = 0;  // of the limit, and nobody else has taken it
  bool operator==(const DiskFigures&) const = default;
};

inline constexpr size_t kMaxFigures = 16;
inline constexpr size_t kFiguresBytes = 4096;
// Readers ask for new figures when theirs are older, and the spawner makes none more often.
inline constexpr int64_t kFiguresMs = 250;

struct FiguresPage {
  std::atomic<uint32_t> sequence;  // odd while the page is being written; a futex
  std::atomic<uint32_t> count;
  std::atomic<int64_t> at_ms;  // CLOCK_BOOTTIME; 0: not measured yet
  struct Entry {
    std::atomic<uint64_t> total, free, available;
  };
  std::array<Entry, kMaxFigures> entries;
};
static_assert(sizeof(FiguresPage) <= kFiguresBytes && std::atomic<uint64_t>::is_always_lock_free);

struct FiguresReading {
  uint32_t sequence = 0;
  int64_t at_ms = 0;
  std::array<DiskFigures, kMaxFigures> figures{};
};

inline void WriteFigures(FiguresPage& page, std::span<const DiskFigures> figures, int64_t at_ms) {
  const uint32_t sequence = page.sequence.load(std::memory_order_relaxed);
  page.sequence.store(sequence + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  const size_t count = std::min(figures.size(), kMaxFigures);
  for (size_t i = 0; i < count; ++i) {
    page.entries[i].total.store(figures[i].total, std::memory_order_relaxed);
    page.entries[i].free.store(figures[i].free, std::memory_order_relaxed);
    page.entries[i].available.store(figures[i].available, std::memory_order_relaxed);
  }
  page.count.store(static_cast<uint32_t>(count), std::memory_order_relaxed);
  page.at_ms.store(at_ms, std::memory_order_relaxed);
  page.sequence.store(sequence + 2, std::memory_order_release);
}

// Nothing while the page is being written: try again.
inline std::optional<FiguresReading> ReadFigures(const FiguresPage& page) {
  FiguresReading out;
  out.sequence = page.sequence.load(std::memory_order_acquire);
  if (out.sequence % 2 != 0) return std::nullopt;
  out.at_ms = page.at_ms.load(std::memory_order_relaxed);
  const size_t count = std::min<size_t>(page.count.load(std::memory_order_relaxed), kMaxFigures);
  for (size_t i = 0; i < count; ++i) {
    out.figures[i] = {page.entries[i].total.load(std::memory_order_relaxed),
                      page.entries[i].free.load(std::memory_order_relaxed),
                      page.entries[i].available.load(std::memory_order_relaxed)};
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  if (page.sequence.load(std::memory_order_relaxed) != out.sequence) return std::nullopt;
  return out;
}

}  // namespace sandbar::protocol
