#include "spawner/machines/nesting_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "os/netns_objects.h"
#include "os/openat.h"
#include "os/process.h"

namespace sandbar::spawner {
namespace {

constexpr int kIntervalMs = 500;
// A host with a thousand containers has some thousand neighbours.
constexpr size_t kMostObjects = 8192;
constexpr size_t kMostTerminals = 512;
// What one look at a machine reads at most.
constexpr size_t kMostProcesses = 4096, kMostDescriptors = 65'536;
constexpr size_t kMaxText = 1 << 20;
// Entries of the host's neighbour table, which has one limit for all namespaces.
constexpr uint64_t kTableLimit = 65'536, kTableDanger = kTableLimit / 4 * 3;

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

std::vector<std::string> Names(const std::string& path, size_t most) {
  std::vector<std::string> names;
  std::unique_ptr<DIR, CloseDir> dir(::opendir(path.c_str()));
  if (!dir) return names;
  while (const dirent* entry = ::readdir(dir.get())) {
    if (entry->d_name[0] == '.') continue;
    names.emplace_back(entry->d_name);
    if (names.size() >= most) break;
  }
  return names;
}

std::string Link(const std::string& path) {
  std::array<char, 256> text{};
  const ssize_t n = ::readlink(path.c_str(), text.data(), text.size());
  return n > 0 ? std::string(text.data(), static_cast<size_t>(n)) : std::string();
}

template <class F>
void ForWords(std::string_view text, char separator, F f) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) f(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// The kernel writes blanks, line ends and backslashes of a path as three octal digits.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] != '\\' || i + 3 >= text.size() ||
        std::from_chars(text.data() + i + 1, text.data() + i + 4, code, 8).ptr != text.data() + i + 4) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(code);
    i += 3;
  }
  return out;
}

// One look at everything that a machine's processes hold.
class Look {
 public:
  explicit Look(pid_t first) : pids_{std::to_string(first)} {}

  // Why the machine has to end; empty: it may go on.
  std::string Decide() {
    for (size_t i = 0; i < pids_.size(); ++i) Visit(pids_[i]);
    if (too_many_mounts_) return "its processes have more mounts than can be looked at";
    if (terminals_ > kMostTerminals)
      return "its containers opened more than " + std::to_string(kMostTerminals) + " terminals, which the host shares";
    if (objects_ > kMostObjects)
      return "its networks hold more than " + std::to_string(kMostObjects) +
             " neighbours, nexthops and bridge entries, which no limit counts";
    return {};
  }

 private:
  void Visit(const std::string& pid) {
    const std::string dir = "/proc/" + pid;
    for (const std::string& thread : Names(dir + "/task", kMostProcesses)) {
      const std::string task = dir + "/task/" + thread;
      Count(Link(task + "/ns/net"), task + "/ns/net");
      auto children = os::ReadFile(task + "/children", kMaxText);
      if (!children) continue;
      ForWords(*children, ' ', [this](std::string_view child) {
        if (pids_.size() < kMostProcesses) pids_.emplace_back(child);
      });
    }
    // Descriptors and mounts keep a namespace alive that no process is in.
    for (const std::string& fd : Names(dir + "/fd", kMostDescriptors - std::min(kMostDescriptors, descriptors_))) {
      ++descriptors_;
      const std::string path = dir + "/fd/" + fd;
      const std::string link = Link(path);
      Count(link, path);
      if (link.ends_with("ptmx") && IsTerminal(path)) ++terminals_;
    }
    // The table shows what the process's own root reaches.
    if (roots_.insert(Link(dir + "/ns/mnt") + Link(dir + "/root")).second) VisitMounts(dir);
  }

  void VisitMounts(const std::string& dir) {
    auto table = os::ReadFile(dir + "/mountinfo", kMaxText);
    if (!table && table.error().code == Code::kTooLarge) too_many_mounts_ = true;
    auto root = os::OpenPath(dir + "/root", O_PATH | O_DIRECTORY);
    if (!table || !root) return;
    ForWords(*table, '\n', [&](std::string_view line) {
      // "36 35 0:4 net:[4026532281] /run/netns/a rw - nsfs nsfs rw"
      std::vector<std::string_view> words;
      ForWords(line, ' ', [&words](std::string_view word) { words.push_back(word); });
      if (words.size() < 5 || !words[3].starts_with("net:[")) return;
      if (Known(std::string(words[3]))) return;
      if (auto ns = os::OpenInside(root->get(), Unescaped(words[4].substr(1)), O_RDONLY | O_NONBLOCK | O_NOCTTY))
        CountIn(std::string(words[3]), *ns);
    });
  }

  bool Known(const std::string& name) const { return namespaces_.contains(name); }

  void Count(const std::string& name, const std::string& path) {
    if (!name.starts_with("net:[") || Known(name)) return;
    Fd ns(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (ns) CountIn(name, ns);
  }

  void CountIn(const std::string& name, const Fd& ns) {
    struct statfs fs{};
    // The guest may have put something else in its place since.
    if (::fstatfs(ns.get(), &fs) != 0 || fs.f_type != NSFS_MAGIC || objects_ > kMostObjects) return;
    namespaces_.insert(name);
    if (auto count = os::CountUnchargedObjects(ns.get(), kMostObjects)) objects_ += *count;
  }

  static bool IsTerminal(const std::string& path) {
    struct stat st{};
    return ::stat(path.c_str(), &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(5, 2);
  }

  std::vector<std::string> pids_;
  std::set<std::string> namespaces_, roots_;
  bool too_many_mounts_ = false;
  size_t objects_ = 0, terminals_ = 0, descriptors_ = 0;
};

// Entries of all namespaces together, from a table whose second line begins with the number. None where the host shows
// no such table.
uint64_t TableEntries(const char* path) {
  auto text = os::ReadFile(path, kMaxText);
  if (!text) return 0;
  const size_t line = text->find('\n');
  if (line == std::string::npos) return 0;
  uint64_t value = 0;
  std::from_chars(text->data() + line + 1, text->data() + text->size(), value, 16);
  return value;
}

std::string TableInDanger() {
  for (const char* path : {"/proc/net/stat/arp_cache", "/proc/net/stat/ndisc_cache"}) {
    if (TableEntries(path) > kTableDanger)
      return "the host's neighbour table is nearly full: every machine that runs containers is ended";
  }
  return {};
}

[[noreturn]] void Watch(pid_t first, int pidfd, int report) {
  os::CloseAllBut({pidfd, report});
  ::prctl(PR_SET_NAME, "nesting-watch");
  [[maybe_unused]] int priority = ::nice(5);
  for (;;) {
    pollfd end{pidfd, POLLIN, 0};
    if (::poll(&end, 1, kIntervalMs) > 0) ::_exit(0);
    std::string why = Look(first).Decide();
    if (why.empty()) why = TableInDanger();
    if (why.empty()) continue;
    [[maybe_unused]] ssize_t n = ::write(report, why.data(), why.size());
    if (os::SendSignal(pidfd, SIGKILL)) ::_exit(0);
  }
}

void Raise(const std::string& path, uint64_t wanted) {
  auto text = os::ReadFile(path, 64);
  uint64_t now = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), now).ec != std::errc{}) return;
  if (now >= wanted) return;
  Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  auto done = file ? WriteAll(file.get(), std::to_string(wanted)) : FailErrno(path);
  if (done) log::Info("raised {} from {} to {}, because containers are allowed inside", path, now, wanted);
  if (!done) log::Warn("cannot raise {}: {}", path, done.error().message);
}

}  // namespace

Result<NestingWatch> NestingWatch::Start(pid_t first, int pidfd) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  NestingWatch watch;
  watch.report_ = Fd(ends[0]);
  const Fd write_end(ends[1]);
  // The grandchild is nobody's to wait for.
  const pid_t child = ::fork();
  if (child < 0) return FailErrno("fork");
  if (child == 0) {
    const pid_t watcher = ::fork();
    if (watcher == 0) Watch(first, pidfd, write_end.get());
    ::_exit(watcher < 0 ? 1 : 0);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0) return Fail(Code::kUnavailable, "cannot watch the machine");
  return watch;
}

std::string NestingWatch::Reason() {
  std::array<char, 256> text{};
  const ssize_t n = report_ ? ::read(report_.get(), text.data(), text.size()) : 0;
  return n > 0 ? std::string(text.data(), static_cast<size_t>(n)) : std::string();
}

void PrepareHostForNesting() {
  for (const char* family : {"ipv4", "ipv6"}) {
    const std::string table = std::string("/proc/sys/net/") + family + "/neigh/default/gc_thresh";
    Raise(table + "3", kTableLimit);
    Raise(table + "2", kTableLimit / 2);
    Raise(table + "1", kTableLimit / 4);
  }
  // Any network namespace can switch this on for the whole host, and nobody can switch it off again: as it is on
  // already, no guest changes anything.
  Raise("/proc/sys/net/netfilter/nf_hooks_lwtunnel", 1);
}

}  // namespace sandbar::spawner
