// Ranges of 65,536 user ids, leased host-wide: two machines, of whatever instance, never share one. A lease is a locked
// file under /run/sandbar/uids; the lock ends with the process that holds it, and a range whose holder died is given
// out again only when no process runs with its ids. Used by the spawner's only thread.
//
//   SB_TRY(auto pool, UidPool::Open("/run/sandbar/uids"));
//   SB_TRY(UidLease lease, pool.Acquire());      // freed by its destructor: destroy it last, after the machine
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

class UidLease {
 public:
  UidLease() = default;
  UidLease(Fd file, uint32_t base) : file_(std::move(file)), base_(base) {}
  UidLease(UidLease&& o) noexcept = default;
  UidLease& operator=(UidLease&& o) noexcept;
  UidLease(const UidLease&) = delete;
  UidLease& operator=(const UidLease&) = delete;
  ~UidLease();
  uint32_t base() const { return base_; }
  explicit operator bool() const { return static_cast<bool>(file_); }

 private:
  void Release();
  Fd file_;
  uint32_t base_ = 0;
};

struct IdRange {
  uint64_t first = 0, count = 0;
};

class UidPool {
 public:
  static constexpr uint32_t kFirst = 1'500'000'000;
  static constexpr uint32_t kRanges = 8192;

  // Reads /etc/passwd, group, subuid and subgid once: ranges that overlap an entry are never leased.
  static Result<UidPool> Open(const std::string& directory);
  static Result<UidPool> OpenWith(const std::string& directory, std::vector<IdRange> reserved, uint32_t first = kFirst);
  Result<UidLease> Acquire();

 private:
  UidPool(Fd dir, std::vector<IdRange> reserved, uint32_t first)
      : dir_(std::move(dir)), reserved_(std::move(reserved)), first_(first) {}
  bool Reserved(uint32_t base) const;
  Fd dir_;
  std::vector<IdRange> reserved_;
  uint32_t first_;
  uint32_t next_ = 0;  // where the last search ended: freed ranges rest as long as possible
};

// Field `column` of colon-separated lines as single ids ("passwd": 2), or start:count pairs ("subuid": 1 and 2).
std::vector<IdRange> ParseIds(std::string_view text, int column, bool with_count);
// True when a process of the host has one of these ids.
Result<bool> IdsInUse(uint32_t base, uint32_t count);

}  // namespace sandbar::os
