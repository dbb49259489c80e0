// Does gVisor work here, and how must it be called? Answered by running a program in it that exits with a number of its
// own: there are hosts on which everything starts and nothing runs.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "base/files.h"
#include "base/log.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/process.h"
#include "spawner/host_resources.h"
#include "spawner/machines/gvisor.h"

namespace sandbar::spawner {
namespace {

constexpr int kProbeMs = 20'000;
constexpr int kProbeExit = 42;
constexpr const char* kProbeVersion = "probe-3";  // another one asks other questions
constexpr const char* kRemembered = "/run/sandbar";
constexpr const char* kRememberedName = "gvisor-probe";

// An executable of x86-64, the headers of 64-bit ELF with one segment and a few instructions: exit(42)
constexpr std::string_view kProgram(
    "\x7f"
    "ELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"
    "\x02\0\x3e\0\x01\0\0\0\x78\0\x40\0\0\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\x38\0\x01\0\0\0\0\0\0\0"
    "\x01\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\x40\0\0\0\0\0\x84\0\0\0\0\0\0\0\x84\0\0\0\0\0\0\0"
    "\0\x10\0\0\0\0\0\0"
    "\xbf\x2a\0\0\0\xb8\x3c\0\0\0\x0f\x05",
    132);

Result<Fd> ProbeRoot() {
  std::vector<os::MountOption> options = {{"mode", "0755"}, {"size", "1m"}};
  SB_TRY(Fd root, os::NewMount("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  SB_TRYV(os::WriteFileAt(root.get(), "true", kProgram, 0555));
  return root;
}

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Waits: only at start.
Result<> RunOnce(const GvisorJail& jail) {
  SB_TRY(os::Child child, StartGvisorJail(jail));
  pollfd p{child.pidfd.get(), POLLIN, 0};
  int n = 0;
  while ((n = ::poll(&p, 1, kProbeMs)) < 0 && errno == EINTR) {
  }
  const bool late = n == 0;
  if (late) SB_TRYV(os::SendSignal(child.pidfd.get(), SIGKILL));
  ::poll(&p, 1, kProbeMs);
  SB_TRY(auto status, os::TryReap(child.pidfd.get()));
  if (late) return Fail(Code::kTimeout, "it hangs");
  if (status == kProbeExit) return {};
  auto said = os::ReadJailStatus(child.status.get());
  return Fail(Code::kUnsupported,
              said ? "it ended with " + std::to_string(status.value_or(-1)) : FirstLine(said.error().message));
}

// The resources of a machine, for the moment of the probe.
class ProbeResources {
 public:
  explicit ProbeResources(ResourcePool* pool) : pool_(pool) {}
  ~ProbeResources() {
    pool_->Discard(std::move(resources));
    for (int i = 0; i < 500 && !pool_->Sweep(); ++i) ::usleep(10'000);
  }
  ProbeResources(const ProbeResources&) = delete;
  ProbeResources& operator=(const ProbeResources&) = delete;
  MachineResources resources;

 private:
  ResourcePool* pool_;
};

Result<std::vector<std::string>> Probe(HostResources& host, int runsc) {
  ResourcePool pool(&host, 0);
  ProbeResources made(&pool);
  SB_TRY(made.resources, pool.Take({.net = NetworkKind::kVeth}));
  GvisorJail jail;
  jail.host = &host;
  jail.resources = &made.resources;
  jail.runsc = runsc;
  jail.hostname = "probe";
  jail.args = {"/true"};
  jail.probe = true;
  jail.limits.memory_bytes = 256 << 20;
  Error last;
  std::vector<std::string> platforms = {"systrap", "ptrace"};
  if (!host.options.gvisor_platform.empty()) platforms = {host.options.gvisor_platform};
  for (const std::string& platform : platforms) {
    // With a file server of its own where the version has the choice: the process that runs guest code then has no
    // access to files at all.
    for (const char* direct : {"--directfs=false", ""}) {
      jail.flags = {"--platform=" + platform};
      if (*direct != 0) jail.flags.emplace_back(direct);
      SB_TRY(Fd root, ProbeRoot());
      jail.root = root.get();
      auto worked = RunOnce(jail);
      if (worked) return jail.flags;
      log::Info("gVisor with {}: {}", jail.flags.front(), worked.error().message);
      last = worked.error();
      if (last.code == Code::kTimeout) break;
    }
  }
  return std::unexpected(std::move(last));
}

// What makes a probe's result worth remembering: the same program on the same kernel since the host booted.
Result<std::string> KeyOf(const HostResources& host, int runsc) {
  struct stat st{};
  utsname kernel{};
  if (::fstat(runsc, &st) != 0 || ::uname(&kernel) != 0) return FailErrno("stat runsc");
  return std::string(kProbeVersion) + " " + std::to_string(st.st_dev) + " " + std::to_string(st.st_ino) + " " +
         std::to_string(st.st_size) + " " + std::to_string(st.st_mtim.tv_sec) + " " + kernel.release + " " +
         host.options.gvisor_platform;
}

std::vector<std::string> Remembered(const std::string& key) {
  auto dir = os::OpenPath(kRemembered, O_RDONLY | O_DIRECTORY);
  if (!dir) return {};
  auto file = os::OpenInside(dir->get(), kRememberedName, O_RDONLY);
  struct stat st{};
  if (!file || ::fstat(file->get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != 0) return {};
  auto text = ReadAll(file->get(), 4096);
  if (!text || !text->starts_with(key + "\n")) return {};
  std::vector<std::string> flags;
  for (size_t at = key.size() + 1; at < text->size();) {
    size_t end = std::min(text->find('\n', at), text->size());
    flags.push_back(text->substr(at, end - at));
    at = end + 1;
  }
  return flags;
}

void Remember(const std::string& key, const std::vector<std::string>& flags) {
  std::string text = key + "\n";
  for (const auto& f : flags) text += f + "\n";
  auto dir = os::OpenPath(kRemembered, O_RDONLY | O_DIRECTORY);
  if (dir) {
    if (auto r = os::WriteFileAt(dir->get(), kRememberedName, text, 0644); !r) log::Warn("{}", r.error().message);
  }
}

Result<Fd> FindRunsc(const std::string& option) {
  if (option == "none")
    return Fail(Code::kUnsupported, "it is switched off ([gvisor] runsc = \"none\" in the configuration)");
  if (!option.empty()) return os::OpenPath(option, O_PATH);
  for (const char* dir : {"/usr/local/bin/", "/usr/bin/", "/usr/local/sbin/", "/usr/sbin/"}) {
    if (::access((std::string(dir) + "runsc").c_str(), X_OK) == 0)
      return os::OpenPath(std::string(dir) + "runsc", O_PATH);
  }
  return Fail(Code::kNotFound,
              "runsc is missing (apt-get install runsc, or [gvisor] runsc = \"FILE\" in the configuration)");
}

}  // namespace

Gvisor FindGvisor(HostResources& host) {
  Gvisor gvisor;
  auto runsc = FindRunsc(host.options.runsc);
  if (!runsc) {
    gvisor.why_not = runsc.error().message;
    return gvisor;
  }
  auto key = KeyOf(host, runsc->get());
  if (key) gvisor.flags = Remembered(*key);
  if (gvisor.flags.empty()) {
    auto flags = Probe(host, runsc->get());
    if (!flags) {
      gvisor.why_not = "runsc does not run a program here: " + flags.error().message;
      return gvisor;
    }
    gvisor.flags = std::move(*flags);
    if (key) Remember(*key, gvisor.flags);
  }
  gvisor.runsc = std::move(*runsc);
  return gvisor;
}

}  // namespace sandbar::spawner
