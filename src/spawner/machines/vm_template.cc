#include "spawner/machines/vm_template.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/log.h"
#include "base/signals.h"
#include "os/confine.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/process.h"
#include "os/vmm_jail.h"
#include "spawner/machines/microvm.h"
#include "spawner/machines/qmp.h"
#include "spawner/machines/root_dir.h"

namespace sandbar::spawner {
namespace {

// Each holds memory of the host, and whoever creates machines chooses their sizes.
constexpr int kMaxPlain = 8;
constexpr int kMaxWithDrives = 4;
constexpr int64_t kIdleMs = 600'000;  // one that is used more often than this stays
constexpr int kAttempts = 3;
constexpr uid_t kNobody = 65534;  // no guest's code runs in it
constexpr int kPatience = 300;    // seconds

Result<std::pair<Fd, Fd>> Pair() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return FailErrno("socketpair");
  return std::pair(Fd(pair[0]), Fd(pair[1]));
}

Result<> Make(const Microvm& vm, VmSize size, int ram, int state) {
  Fd empty(::memfd_create("nothing", MFD_CLOEXEC));
  if (!empty || ::ftruncate(empty.get(), 1 << 20) != 0) return FailErrno("memfd");
  SB_TRY(Fd readable, os::OpenPath("/proc/self/fd/" + std::to_string(empty.get()), O_RDONLY));
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un any{};
  any.sun_family = AF_UNIX;
  // The kernel finds a name, in a network namespace that nobody else is in.
  if (::unshare(CLONE_NEWNET) != 0 ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any.sun_family) != 0 ||
      ::listen(listener.get(), 1) != 0)
    return FailErrno("listen");
  SB_TRY(auto config, Pair());
  SB_TRY(auto control, Pair());
  SB_TRY(Fd jail_tree, os::CloneTree(AT_FDCWD, vm.jail_tree, true));
  os::VmmPlan plan;
  plan.root = jail_tree.get();
  plan.mount_point = InMountDir("mp");
  plan.uid = plan.gid = kNobody;
  plan.program = vm.program.get();
  plan.env = {kQemuModules};
  Fd errors(::memfd_create("errors", MFD_CLOEXEC));
  plan.errors = errors.get();
  sock_fprog filter{static_cast<unsigned short>(vm.filter.size()), const_cast<sock_filter*>(vm.filter.data())};
  plan.filter = &filter;
  // In the order of QemuMachine; the fifth is where others have their network.
  plan.keep = {readable.get(), empty.get(), listener.get(), config.first.get(), empty.get(), ram, control.first.get()};
  plan.argv = QemuMachine(vm, size, QemuMemory::kShared, false);
  plan.argv.insert(plan.argv.end(), {"-chardev", "socket,id=control,fd=9", "-mon", "chardev=control,mode=control"});
  for (size_t i = 0; i < size.drives; ++i) {
    const std::vector<std::string> words = QemuDrive(i, 3 + plan.keep.size());
    plan.argv.insert(plan.argv.end(), words.begin(), words.end());
    plan.keep.push_back(empty.get());
  }
  SB_TRY(os::Child child, os::StartVmm(std::move(plan)));
  control.first.Reset();
  auto saved = os::ConfineToDescriptors(uint64_t{1} << CAP_KILL, {});
  if (saved) saved = SaveTemplate(control.second.get(), state);
  if (auto r = os::SendSignal(child.pidfd.get(), SIGKILL); !r) log::Debug("{}", r.error().message);
  // While it still has the memory mapped, that cannot be sealed.
  auto status = os::TryReap(child.pidfd.get());
  for (int i = 0; i < kPatience * 100 && status && !status->has_value(); ++i) {
    ::usleep(10'000);
    status = os::TryReap(child.pidfd.get());
  }
  if (saved) return {};
  if (status && status->has_value()) log::Warn("microvm template: QEMU ended with {}", **status);
  std::array<char, 600> said{};
  ssize_t n = ::pread(errors.get(), said.data(), said.size(), 0);
  return std::unexpected(
      std::move(saved).error().Context(std::string(said.data(), n > 0 ? static_cast<size_t>(n) : 0)));
}

std::string Describe(const VmSize& size) {
  const std::string with = size.drives == 0 ? "" : " with " + std::to_string(size.drives) + " drives";
  return "microvm template of " + std::to_string(size.mib) + " MiB" + with;
}

uint64_t HeldMib(const VmTemplate& t) {
  struct stat ram{}, state{};
  if (::fstat(t.ram.get(), &ram) != 0 || ::fstat(t.state.get(), &state) != 0) return 0;
  return static_cast<uint64_t>(ram.st_blocks + state.st_blocks) * 512 >> 20;
}

void Collect(VmTemplates& t) {
  if (!t.size) return;
  auto status = os::TryReap(t.process.get());
  if (status && !status->has_value()) return;
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  bool good = status && **status == 0 && ::fcntl(t.making.ram.get(), F_ADD_SEALS, kSeals) == 0 &&
              ::fcntl(t.making.state.get(), F_ADD_SEALS, kSeals) == 0;
  if (good) {
    t.making.mib = HeldMib(t.making);
    log::Info("{}: ready, holds {} MiB", Describe(*t.size), t.making.mib);
    t.making.used_at = os::BootTimeMs();
    t.ready[*t.size] = std::move(t.making);
  } else {
    log::Info("{}: not made, machines boot", Describe(*t.size));
    ++t.failures[*t.size];
  }
  t.size.reset();
  t.process.Reset();
  t.making = {};
}

Result<> Begin(Microvm& vm, VmSize size) {
  VmTemplates& t = vm.templates;
  t.making.ram = Fd(::memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  t.making.state = Fd(::memfd_create("state", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!t.making.ram || !t.making.state || ::ftruncate(t.making.ram.get(), static_cast<off_t>(size.mib << 20)) != 0)
    return FailErrno("memfd");
  pid_t parent = ::getpid();
  pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) {
    ResetSignals();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    os::CloseAllBut({t.making.ram.get(), t.making.state.get(), vm.program.get()});
    auto made = Make(vm, size, t.making.ram.get(), t.making.state.get());
    if (!made) log::Warn("microvm template: {}", made.error().message);
    ::_exit(made ? 0 : 1);
  }
  t.process = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!t.process) return FailErrno("pidfd");
  t.size = size;
  return {};
}

void Start(Microvm& vm, const VmSize& size) {
  VmTemplates& t = vm.templates;
  auto failed = t.failures.find(size);
  if (failed != t.failures.end() && failed->second >= kAttempts) return;
  if (t.ready.contains(size) || !FreeMemoryFor(t, size, os::BootTimeMs())) return;
  if (auto begun = Begin(vm, size); !begun) {
    log::Warn("microvm template: {}", begun.error().message);
    ++t.failures[size];
  }
}

}  // namespace

bool CollectTemplate(Microvm& vm) {
  VmTemplates& t = vm.templates;
  Collect(t);
  if (!t.size && t.next) Start(vm, *std::exchange(t.next, std::nullopt));
  return t.size.has_value();
}

bool FreeMemoryFor(VmTemplates& t, const VmSize& size, int64_t now) {
  const bool drives = size.drives != 0;
  const uint64_t most_mib = drives ? t.most_mib / 2 : t.most_mib;
  // The least that a kernel takes for a list of its pages, and for itself.
  const uint64_t least_mib = size.mib / 64 + 64;
  if (least_mib > most_mib) return false;
  for (;;) {
    int there = 0;
    uint64_t held_mib = least_mib;
    auto oldest = t.ready.end();
    for (auto it = t.ready.begin(); it != t.ready.end(); ++it) {
      if ((it->first.drives != 0) != drives) continue;
      ++there;
      held_mib += it->second.mib;
      if (oldest == t.ready.end() || it->second.used_at < oldest->second.used_at) oldest = it;
    }
    if (there < (drives ? kMaxWithDrives : kMaxPlain) && held_mib <= most_mib) return true;
    if (now - oldest->second.used_at < kIdleMs) return false;
    t.ready.erase(oldest);
  }
}

const VmTemplate* FindTemplate(Microvm& vm, VmSize size) {
  VmTemplates& t = vm.templates;
  if (!t.used) return nullptr;
  const bool busy = CollectTemplate(vm);
  if (auto it = t.ready.find(size); it != t.ready.end()) {
    it->second.used_at = os::BootTimeMs();
    return &it->second;
  }
  if (!busy) {
    Start(vm, size);
  } else if (t.size != size && (!t.next || t.next->drives != 0)) {
    t.next = size;
  }
  return nullptr;
}

Result<> SaveTemplate(int control, int state) {
  Qmp qmp(control, os::BootTimeMs() + kPatience * 1000);
  SB_TRYV(qmp.Ask("qmp_capabilities"));
  for (bool waits = false; !waits;) {
    SB_TRY(std::string line, qmp.AwaitLine());
    const std::string_view data = QmpField(line, "data");
    waits = QmpField(line, "event") == "\"VSERPORT_CHANGE\"" && QmpField(data, "id") == "\"config-port\"" &&
            QmpField(data, "open") == "true";
  }
  // Until it really waits; what it does in between every machine would do again.
  ::usleep(500'000);
  SB_TRYV(qmp.Ask(
      "migrate-set-capabilities",
      R"({"capabilities":[{"capability":"x-ignore-shared","state":true},{"capability":"events","state":true}]})"));
  SB_TRYV(qmp.Ask("getfd", R"({"fdname":"state"})", state));
  SB_TRYV(qmp.Tell("migrate", R"({"uri":"fd:state"})"));
  for (;;) {
    SB_TRY(std::string line, qmp.AwaitLine());
    const std::string_view status = QmpField(QmpField(line, "data"), "status");
    if (QmpField(line, "event") == "\"MIGRATION\"" && status == "\"completed\"") return {};
    if (status == "\"failed\"" || !QmpField(line, "error").empty())
      return Fail(Code::kIo, "QEMU could not write its state down");
  }
}

std::string RestoreCommands(int state) {
  return R"({"execute":"qmp_capabilities"}
{"execute":"migrate-set-capabilities","arguments":{"capabilities":[{"capability":"x-ignore-shared","state":true}]}}
{"execute":"migrate-incoming","arguments":{"uri":"fd:)" +
         std::to_string(state) + "\"}}\n";
}

}  // namespace sandbar::spawner
