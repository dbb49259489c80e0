#include "spawner/disk/disk_limit_watch.h"

#include <fcntl.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "os/openat.h"

namespace sandbar::spawner {
namespace {

constexpr uint64_t kMiB = 1ULL << 20;
// A machine is near its limit with less room than a quarter of the limit, within these bounds.
constexpr uint64_t kNearLeast = 64 * kMiB, kNearMost = 1024 * kMiB;
constexpr uint64_t kFirst = kMiB;  // a machine that wrote so much is measured once, however much room it has
constexpr uint64_t kGain = kMiB;   // a measurement that gains less counts as one without a gain
constexpr uint64_t kUnwritten = 4 * kMiB;
constexpr uint64_t kSteps = 64;  // during a measurement the limit changes by at least 1/64
// A guest writes about 1 GiB/s at most. The spawner looks less often at a guest that writes nothing.
constexpr uint64_t kBytesPerMs = kMiB;
constexpr int64_t kSoonestMs = 50, kIdleMs = 250, kLatestMs = 1000;
// Pauses between measurements without a gain: near the limit from the first to the most, far from it always the same.
// The pause is also at least kShare times as long as one reading of the tree took. A measurement that ended without a
// report counts as one reading.
constexpr int64_t kFirstWaitMs = 100, kMostWaitMs = 4000, kFarWaitMs = 30'000, kShare = 20;

// On the directory around upper/, where no guest sees it. Only root of the host can set attributes of this kind.
constexpr const char* kHeldName = "trusted.sandbar.held";

// 0 when nothing was written down: an older spawner made the snapshot.
uint64_t ReadHeld(int dir) {
  uint64_t bytes = 0;
  return ::fgetxattr(dir, kHeldName, &bytes, sizeof bytes) == sizeof bytes ? bytes : 0;
}

}  // namespace

int64_t DiskLimitPolicy::Look(int64_t now, const os::Held& held) {
  const uint64_t room = own_ - std::min(own_, held.total());
  const bool still = held == seen_;
  seen_ = held;
  // A machine with less room than it inherited counts as near its limit: a measurement may find that much more.
  const uint64_t inherited = limit_ - std::min(limit_, own_);
  const bool near = room < std::max(std::clamp(limit_ / 4, kNearLeast, kNearMost), inherited);
  const bool first = !known_ && held.total() >= kFirst;
  const bool worth = near || first || (known_ && now >= ended_ + kFarWaitMs);
  wants_ = worth && !running_ && now >= not_before_ && held != measured_;
  const auto pace = static_cast<int64_t>(std::min(room / kBytesPerMs, static_cast<uint64_t>(kLatestMs)));
  return now + std::max(pace, still || running_ ? kIdleMs : kSoonestMs);
}

void DiskLimitPolicy::Began(int64_t now) {
  wants_ = reported_ = false;
  running_ = true;
  began_ = now;
  gained_ = took_ms_ = 0;
  measured_ = seen_;
}

void DiskLimitPolicy::Gained(uint64_t bytes, uint64_t took_ms) {
  known_ = reported_ = true;
  gained_ += bytes;
  took_ms_ = std::max(took_ms_, took_ms);
}

void DiskLimitPolicy::Ended(int64_t now) {
  running_ = false;
  wait_ms_ = gained_ >= kGain ? kFirstWaitMs : std::clamp(2 * wait_ms_, kFirstWaitMs, kMostWaitMs);
  const int64_t reading = reported_ ? static_cast<int64_t>(std::min<uint64_t>(took_ms_, 3'600'000)) : now - began_;
  ended_ = now;
  not_before_ = now + std::max(wait_ms_, reading * kShare);
}

Result<> DiskLimitWatch::Begin(Disk* disk, const DiskSlot& slot, uint64_t limit, uint64_t inherited) {
  *this = {};
  if (limit == 0 || !disk->limits_own_bytes()) return SetLimit(disk, slot, limit, inherited);
  SB_TRY(Fd dir, os::OpenPath(slot.path, O_RDONLY | O_DIRECTORY));
  held_before_ = ReadHeld(dir.get());
  SB_TRYV(SetLimit(disk, slot, limit, inherited));
  // Without a meter nobody measures, and the limit stays as it is now: too strict after old files were deleted.
  auto meter = os::QuotaMeter::Open(std::move(dir));
  if (!meter) log::Warn("disk of {}: {}", slot.name, meter.error().message);
  if (meter) meter_ = std::move(*meter);
  return {};
}

Result<> DiskLimitWatch::SetLimit(Disk* disk, const DiskSlot& slot, uint64_t limit, uint64_t inherited) {
  if (!measured_) inherited_ = found_ = std::max(inherited, held_before_);
  limit_ = limit;
  policy_.Set(limit, OwnLimit(limit, inherited_));
  return disk->SetLimit(slot, limit, inherited_);
}

Result<> DiskLimitWatch::Remember(const Disk& disk, const DiskSlot& slot) const {
  if (limit_ == 0 || !disk.limits_own_bytes()) return {};
  SB_TRY(Fd dir, os::OpenPath(slot.path, O_RDONLY | O_DIRECTORY));
  // The figures of the moment: those on the disk are as old as the last commit.
  SB_TRY(Fd same, os::OpenPath(slot.path, O_RDONLY | O_DIRECTORY));
  SB_TRY(os::QuotaMeter meter, os::QuotaMeter::Open(std::move(same)));
  SB_TRY(os::Held held, meter.Read());
  const uint64_t bytes = inherited_ + held.total();
  if (::fsetxattr(dir.get(), kHeldName, &bytes, sizeof bytes, 0) != 0) return FailErrno("note what the disk holds");
  return {};
}

int64_t DiskLimitWatch::Look(int64_t now) {
  auto held = meter_.Read();
  // The figures go away with the slot.
  if (!held) return now + kLatestMs;
  held->generation = held_.generation;
  if (now >= generation_at_) {
    generation_at_ = now + kLatestMs;
    if (auto generation = meter_.Generation()) held->generation = *generation;
  }
  held_ = *held;
  return policy_.Look(now, held_);
}

bool DiskLimitWatch::unwritten() const {
  return held_.data >= kUnwritten;
}

Result<> DiskLimitWatch::Measured(Disk* disk, const DiskSlot& slot, const Measurement& found) {
  policy_.Gained(found_ - std::min(found_, found.inherited), found.took_ms);
  found_ = found.inherited;
  measured_ = true;
  // Setting a limit costs the kernel something: small steps wait for the end.
  const uint64_t gain = inherited_ - std::min(inherited_, found_);
  return found_ > inherited_ || gain >= limit_ / kSteps ? Apply(disk, slot) : Result<>{};
}

Result<> DiskLimitWatch::Ended(Disk* disk, const DiskSlot& slot, int64_t now) {
  policy_.Ended(now);
  return Apply(disk, slot);
}

Result<> DiskLimitWatch::Apply(Disk* disk, const DiskSlot& slot) {
  if (found_ == inherited_) return {};
  inherited_ = found_;
  return SetLimit(disk, slot, limit_, inherited_);
}

}  // namespace sandbar::spawner
