#include "os/uid_lease.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/files.h"
#include "os/openat.h"
#include "os/userns.h"

namespace sandbar::os {
namespace {

constexpr size_t kMaxIdFile = 16 << 20;

std::string_view Column(std::string_view line, int column) {
  for (; column > 0; --column) {
    size_t colon = line.find(':');
    if (colon == std::string_view::npos) return {};
    line.remove_prefix(colon + 1);
  }
  return line.substr(0, line.find(':'));
}

bool ParseNumber(std::string_view s, uint64_t* out) {
  auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), *out);
  return ec == std::errc() && end == s.data() + s.size() && !s.empty();
}

void Append(std::vector<IdRange>& all, const char* path, int column, bool with_count) {
  // A missing file reserves nothing; subuid and subgid are optional.
  auto text = ReadFile(path, kMaxIdFile);
  if (!text) return;
  auto more = ParseIds(*text, column, with_count);
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

UidLease& UidLease::operator=(UidLease&& o) noexcept {
  if (this != &o) {
    Release();
    file_ = std::move(o.file_);
    base_ = o.base_;
  }
  return *this;
}

UidLease::~UidLease() {
  Release();
}

void UidLease::Release() {
  if (!file_) return;
  // An empty file says "given back in order"; a range whose holder was killed keeps its mark.
  [[maybe_unused]] int rc = ::ftruncate(file_.get(), 0);
  file_.Reset();
}

std::vector<IdRange> ParseIds(std::string_view text, int column, bool with_count) {
  std::vector<IdRange> out;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    IdRange r{0, 1};
    if (line.empty() || line.front() == '#' || !ParseNumber(Column(line, column), &r.first)) continue;
    if (with_count && !ParseNumber(Column(line, column + 1), &r.count)) continue;
    out.push_back(r);
  }
  return out;
}

Result<bool> IdsInUse(uint32_t base, uint32_t count) {
  SB_TRY(Fd proc, OpenPath("/proc", O_RDONLY | O_DIRECTORY));
  SB_TRY(auto names, ListDir(proc.get()));
  for (const auto& name : names) {
    if (name[0] < '0' || name[0] > '9') continue;
    auto status = ReadFile("/proc/" + name + "/status", 64 << 10);
    if (!status) continue;  // ended meanwhile
    size_t at = status->find("\nUid:");
    if (at == std::string::npos) continue;
    const char* p = status->data() + at + 5;
    const char* end = status->data() + status->size();
    for (int field = 0; field < 4; ++field) {
      while (p < end && (*p == '\t' || *p == ' ')) ++p;
      uint64_t id = 0;
      p = std::from_chars(p, end, id).ptr;
      if (id >= base && id < static_cast<uint64_t>(base) + count) return true;
    }
  }
  return false;
}

Result<UidPool> UidPool::Open(const std::string& directory) {
  std::vector<IdRange> reserved;
  Append(reserved, "/etc/passwd", 2, false);
  Append(reserved, "/etc/passwd", 3, false);
  Append(reserved, "/etc/group", 2, false);
  Append(reserved, "/etc/subuid", 1, true);
  Append(reserved, "/etc/subgid", 1, true);
  return OpenWith(directory, std::move(reserved));
}

Result<UidPool> UidPool::OpenWith(const std::string& directory, std::vector<IdRange> reserved, uint32_t first) {
  std::error_code ec;
  std::filesystem::create_directories(directory, ec);
  if (ec) return FailErrno("create " + directory, ec.value());
  SB_TRY(Fd dir, OpenPath(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (::fchmod(dir.get(), 0700) != 0) return FailErrno("chmod " + directory);
  return UidPool(std::move(dir), std::move(reserved), first);
}

bool UidPool::Reserved(uint32_t base) const {
  return std::ranges::any_of(reserved_, [base](const IdRange& r) {
    return r.count > 0 && r.first < static_cast<uint64_t>(base) + kIdsPerMachine && base < r.first + r.count;
  });
}

Result<UidLease> UidPool::Acquire() {
  for (uint32_t tried = 0; tried < kRanges; ++tried) {
    uint32_t index = next_;
    next_ = (next_ + 1) % kRanges;
    uint32_t base = first_ + index * kIdsPerMachine;
    if (Reserved(base)) continue;
    SB_TRY(Fd file, OpenInside(dir_.get(), std::to_string(base), O_RDWR | O_CREAT, 0600));
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) continue;
      return FailErrno("lock uid range");
    }
    struct stat st{};
    if (::fstat(file.get(), &st) != 0) return FailErrno("stat uid range");
    if (st.st_size > 0) {
      SB_TRY(bool used, IdsInUse(base, kIdsPerMachine));
      if (used) continue;
    } else {
      SB_TRYV(WriteAll(file.get(), "leased\n"));
    }
    return UidLease(std::move(file), base);
  }
  return Fail(Code::kQuota, "every user id range is leased");
}

}  // namespace sandbar::os
