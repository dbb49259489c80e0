#include "guest/statfs_server.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <ctime>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "os/caps.h"
#include "os/statfs_calls.h"
#include "protocol/disk_figures.h"

namespace sandbar::guest {
namespace {

constexpr int64_t kWaitMs = 100;        // for new figures
constexpr int64_t kFirstWaitMs = 3000;  // for the first
constexpr int64_t kAskAgainMs = 2000;   // when the spawner has not answered
constexpr size_t kShortPath = 256;      // read at first
constexpr size_t kMaxStatus = 1 << 20;  // of /proc/PID/status: 65,536 groups fit

// 0, or a negative errno: what a system call returns.
using Answer = int;
template <class T>
using Found = std::expected<T, Answer>;

std::unexpected<Answer> Refuse(int error) {
  return std::unexpected(-error);
}

int64_t NowMs() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

// With whose rights a path is looked up.
struct Who {
  uint32_t process = 0;  // thread group
  uint32_t user = 0, group = 0;
  std::vector<gid_t> groups;
  uint64_t capabilities = 0;
};

std::vector<uint64_t> Numbers(std::string_view text, int base) {
  std::vector<uint64_t> out;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    uint64_t value = 0;
    auto [next, ec] = std::from_chars(at, end, value, base);
    if (ec == std::errc()) out.push_back(value);
    at = ec == std::errc() ? next : at + 1;
  }
  return out;
}

// The value of a line of /proc/PID/status. The first line is the name that the process gave itself, in which the kernel
// escapes line ends.
std::string_view Line(std::string_view status, std::string_view name) {
  const size_t at = status.find(name);
  if (at == std::string_view::npos) return {};
  status.remove_prefix(at + name.size());
  return status.substr(0, status.find('\n'));
}

std::optional<Who> ParseWho(std::string_view status) {
  auto process = Numbers(Line(status, "\nTgid:"), 10);
  auto users = Numbers(Line(status, "\nUid:"), 10);
  auto groups = Numbers(Line(status, "\nGid:"), 10);
  auto effective = Numbers(Line(status, "\nCapEff:"), 16);
  // Real, effective, saved, and the one that counts for files.
  if (process.size() != 1 || users.size() != 4 || groups.size() != 4 || effective.size() != 1) return std::nullopt;
  Who who{static_cast<uint32_t>(process[0]),
          static_cast<uint32_t>(users[3]),
          static_cast<uint32_t>(groups[3]),
          {},
          effective[0]};
  for (uint64_t group : Numbers(Line(status, "\nGroups:"), 10)) who.groups.push_back(static_cast<gid_t>(group));
  return who;
}

struct Place {
  uint64_t mount = 0, inode = 0;
  uint32_t major = 0, minor = 0;
  bool operator==(const Place&) const = default;
};

Found<Place> PlaceOf(int fd, const char* path = "") {
  struct statx st{};
  if (::statx(fd, path, AT_EMPTY_PATH, STATX_MNT_ID | STATX_INO, &st) != 0) return Refuse(errno);
  return Place{st.stx_mnt_id, st.stx_ino, st.stx_dev_major, st.stx_dev_minor};
}

class StatfsServer {
 public:
  explicit StatfsServer(const StatfsServerOptions& options) : options_(options), duty_(*options.duty) {}

  [[noreturn]] void Run() {
    if (!Prepare()) ::_exit(1);
    const int listener = duty_.calls.listener.get();
    for (;;) {
      pollfd p{listener, POLLIN, 0};
      const int ready = ::poll(&p, 1, static_cast<int>(options_.idle.count()));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0 || (p.revents & POLLIN) == 0) ::_exit(0);
      seccomp_notif* call = options_.call;
      *call = {};
      if (!os::ReceiveCall(listener, call)) continue;
      os::AnswerCall(listener, call->id, Serve(*call));
      call->id = 0;
    }
  }

 private:
  bool Prepare() {
    proc_ = Fd(::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
    root_ = Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    auto place = PlaceOf(root_.get());
    void* page = ::mmap(nullptr, protocol::kFiguresBytes, PROT_READ, MAP_SHARED, duty_.figures.get(), 0);
    if (!proc_ || !root_ || !place || page == MAP_FAILED) return false;
    root_place_ = *place;
    page_ = static_cast<const protocol::FiguresPage*>(page);
    return UseOwnRights();
  }

  Answer Serve(const seccomp_notif& call) {
    const std::string thread = std::to_string(call.pid);
    Fd memory(::openat(proc_.get(), (thread + "/mem").c_str(), O_RDWR | O_CLOEXEC));
    if (!memory) return errno == ENOENT || errno == ESRCH ? -EINTR : -EACCES;
    const bool by_path = call.data.nr == SYS_statfs;
    auto target = by_path ? OpenPath(thread, memory.get(), call.data.args[0])
                          : OpenDescriptor(thread, static_cast<int>(call.data.args[0]));
    if (!target) return target.error();
    auto answer = Figures(target->get());
    if (!answer) return answer.error();
    // The thread's number may have become another's meanwhile. While the call waits it has not, so everything above was
    // looked up for the caller, and this is the caller's memory. From here on the call can end only with its process.
    if (!os::CallWaits(duty_.calls.listener.get(), call.id)) return -EINTR;
    const auto size = static_cast<ssize_t>(sizeof *answer);
    const auto at = static_cast<off_t>(call.data.args[1]);
    return ::pwrite(memory.get(), &*answer, sizeof *answer, at) == size ? 0 : -EFAULT;
  }

  Found<Fd> OpenDescriptor(const std::string& thread, int number) {
    const std::string path = thread + "/fd/" + std::to_string(number);
    Fd fd(::openat(proc_.get(), path.c_str(), O_PATH | O_CLOEXEC));
    if (!fd) return Refuse(EBADF);
    return fd;
  }

  static Found<std::string> ReadPath(int memory, uint64_t at) {
    std::string path(kShortPath, '\0');
    for (size_t have = 0;;) {
      const ssize_t n = ::pread(memory, path.data() + have, path.size() - have, static_cast<off_t>(at + have));
      if (n <= 0) return Refuse(EFAULT);
      have += static_cast<size_t>(n);
      if (const size_t end = path.find('\0'); end < have) {
        path.resize(end);
        return path;
      }
      if (have == PATH_MAX) return Refuse(ENAMETOOLONG);
      if (have == path.size()) path.resize(PATH_MAX);
    }
  }

  Found<Fd> OpenPath(const std::string& thread, int memory, uint64_t at) {
    auto path = ReadPath(memory, at);
    if (!path) return std::unexpected(path.error());
    if (path->empty()) return Refuse(ENOENT);
    if (NoSuchLabels(thread, *path)) return Refuse(ENOENT);
    auto who = WhoIs(thread);
    if (!who) return std::unexpected(who.error());
    const std::string root = thread + "/root";
    auto place = PlaceOf(proc_.get(), root.c_str());
    if (!place) return std::unexpected(place.error());
    const bool moved = *place != root_place_;
    if (!moved) NameCaller(*who, *path);
    Fd directory, other_root;
    auto open = [&](const std::string& name) {
      return Fd(::openat(proc_.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    };
    if (!path->starts_with('/') && !(directory = open(thread + "/cwd"))) return Refuse(ENOENT);
    if (moved && (!(other_root = open(root)) || !ChangeRoot(other_root.get()))) return Refuse(EACCES);
    auto found = LookUp(*who, directory.get(), *path);
    // Nobody can go on with another's root.
    if (moved && !ChangeRoot(root_.get())) ::_exit(1);
    return found;
  }

  // Each start of ls, cp, mkdir, tar or sed looks twice for files of SELinux, where everybody may look.
  bool NoSuchLabels(const std::string& thread, std::string_view path) const {
    if (path != "/sys/fs/selinux" && path != "/selinux") return false;
    const std::string there = thread + "/root" + std::string(path);
    return ::faccessat(proc_.get(), there.c_str(), F_OK, 0) != 0 && errno == ENOENT;
  }

  Found<Who> WhoIs(const std::string& thread) const {
    Fd file(::openat(proc_.get(), (thread + "/status").c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return Refuse(EINTR);
    std::string text;
    for (ssize_t n = 1; n > 0 && text.size() < kMaxStatus;) {
      std::array<char, 4096> buffer;
      n = ::read(file.get(), buffer.data(), buffer.size());
      if (n > 0) text.append(buffer.data(), static_cast<size_t>(n));
    }
    auto who = ParseWho(text);
    if (!who) return Refuse(EINTR);
    return *std::move(who);
  }

  // This process would find itself there.
  static void NameCaller(const Who& who, std::string& path) {
    constexpr std::string_view kSelf = "/proc/self", kDescriptors = "/dev/fd/";
    const std::string process = "/proc/" + std::to_string(who.process);
    if (path.starts_with(kDescriptors)) {
      path.replace(0, kDescriptors.size(), process + "/fd/");
    } else if (path.starts_with(kSelf) && (path.size() == kSelf.size() || path[kSelf.size()] == '/')) {
      path.replace(0, kSelf.size(), process);
    }
  }

  static bool ChangeRoot(int directory) { return ::fchdir(directory) == 0 && ::chroot(".") == 0; }

  static constexpr uint64_t kReserved = uint64_t{1} << CAP_SYS_PTRACE;
  static bool UseOwnRights() {
    const uint64_t all = os::kGuestCapabilities | kReserved;
    return os::SetCapabilitiesRaw(all, all) == 0;
  }

  // Opens nothing: such a descriptor only names a place.
  Found<Fd> LookUp(const Who& who, int directory, const std::string& path) {
    const bool is_root = who.user == 0 && (who.capabilities >> CAP_DAC_OVERRIDE & 1) != 0;
    if (!is_root) {
      if (::syscall(SYS_setgroups, who.groups.size(), who.groups.data()) != 0) return Refuse(EACCES);
      ::setfsgid(who.group);
      ::setfsuid(who.user);
    }
    const uint64_t all = os::kGuestCapabilities | kReserved;
    Fd fd;
    int error = EACCES;
    if (os::SetCapabilitiesRaw(all, who.capabilities & os::kGuestCapabilities) == 0) {
      fd = Fd(::openat(directory, path.c_str(), O_PATH | O_CLOEXEC));
      error = errno;
    }
    bool back = UseOwnRights();
    if (!is_root) {
      ::setfsuid(0);
      ::setfsgid(0);
      back = UseOwnRights() && ::syscall(SYS_setgroups, 0, nullptr) == 0;
    }
    if (!back) ::_exit(1);
    if (!fd) return Refuse(error);
    return fd;
  }

  // Filesystems without a size, such as /proc, have no figures anyway. All others are shared with the host or with
  // other machines, and tell about them: files that cover parts of /proc, or this process's own executable, which a
  // path through /proc/self leads to when this process looks it up.
  static struct statfs WithoutFigures(struct statfs fs) {
    fs.f_blocks = fs.f_bfree = fs.f_bavail = 0;
    fs.f_files = fs.f_ffree = 0;
    return fs;
  }

  Found<struct statfs> Figures(int fd) {
    struct statfs out{};
    auto place = PlaceOf(fd);
    if (!place) return std::unexpected(place.error());
    if (os::RealFstatfs(fd, &out, duty_.calls.key) != 0) return Refuse(errno);
    if (std::ranges::find(duty_.others, place->mount) != duty_.others.end()) return out;
    const auto at = std::ranges::find(duty_.disks, place->mount);
    if (at == duty_.disks.end()) return WithoutFigures(out);
    const auto index = static_cast<size_t>(at - duty_.disks.begin());
    const protocol::DiskFigures figures =
        index < protocol::kMaxFigures ? Fresh().figures[index] : protocol::DiskFigures{};
    const auto block = static_cast<uint64_t>(std::max<long>(out.f_bsize, 512));
    out.f_blocks = figures.total / block;
    out.f_bfree = std::min(figures.free, figures.total) / block;
    out.f_bavail = std::min(figures.available, figures.total) / block;
    return out;
  }

  protocol::FiguresReading Read() const {
    for (;;) {
      if (auto reading = protocol::ReadFigures(*page_)) return *reading;
    }
  }

  // Asks for new figures when the last are old, and waits a moment. The spawner may answer later when many machines
  // ask; until then the last figures have to do.
  protocol::FiguresReading Fresh() {
    protocol::FiguresReading reading = Read();
    const uint32_t before = reading.sequence;
    const int64_t began = NowMs();
    const bool waits = asked_sequence_ == before && asked_ms_ + kAskAgainMs > began;
    if (reading.at_ms + protocol::kFiguresMs > began || waits) return reading;
    const int64_t until = began + (reading.at_ms == 0 ? kFirstWaitMs : kWaitMs);
    asked_sequence_ = before;
    asked_ms_ = began;
    const uint64_t one = 1;
    if (::write(duty_.ask.get(), &one, sizeof one) != sizeof one) return reading;
    for (int64_t now = began; reading.sequence == before && now < until; now = NowMs()) {
      const timespec wait{(until - now) / 1000, (until - now) % 1000 * 1'000'000};
      ::syscall(SYS_futex, &page_->sequence, FUTEX_WAIT, before, &wait, nullptr, 0);
      reading = Read();
    }
    return reading;
  }

  StatfsServerOptions options_;
  const os::StatfsDuty& duty_;
  Fd proc_, root_;
  Place root_place_;
  const protocol::FiguresPage* page_ = nullptr;
  uint32_t asked_sequence_ = 1;  // of the page when it asked; odd: it has not
  int64_t asked_ms_ = 0;
};

}  // namespace

void RunStatfsServer(const StatfsServerOptions& options) {
  StatfsServer(options).Run();
}

}  // namespace sandbar::guest
