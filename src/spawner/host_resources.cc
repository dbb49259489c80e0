#include "spawner/host_resources.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "base/engine_table.h"
#include "base/files.h"
#include "base/ids.h"
#include "base/log.h"
#include "os/machine_files.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/process.h"
#include "os/seccomp.h"
#include "os/statfs_calls.h"
#include "spawner/machines/nesting_watch.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kMaxAgent = 64 << 20;

Result<> Probe(const Options& o) {
  if (::geteuid() != 0)
    return Fail(Code::kForbidden, "must run as root: it makes namespaces, mounts and control groups");
  if (!os::KernelAtLeast(6, 1))
    return Fail(Code::kUnsupported, "this kernel is too old: 6.1 or newer is needed (id-mapped overlay mounts)");
  if (::access(o.guest.c_str(), R_OK) != 0) return FailErrno("the agent " + o.guest);
  if (!o.extra_ca.empty() && ::access(o.extra_ca.c_str(), R_OK) != 0)
    return FailErrno("extra_ca of the configuration, " + o.extra_ca);
  if (!os::FilesystemAvailable("overlay"))
    return Fail(Code::kUnsupported, "the kernel has no overlay filesystem (modprobe overlay)");
  if (o.disk_limits) {
    if (!os::FilesystemAvailable("btrfs"))
      return Fail(Code::kUnsupported,
                  "the kernel has no btrfs (modprobe btrfs, or [disk] limit = \"none\" in the configuration)");
    bool found = false;
    for (const char* dir : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"})
      found = found || ::access((std::string(dir) + "mkfs.btrfs").c_str(), X_OK) == 0;
    if (!found)
      return Fail(
          Code::kUnsupported,
          "mkfs.btrfs is missing (apt-get install btrfs-progs, or [disk] limit = \"none\" in the configuration)");
    if (::access("/dev/loop-control", R_OK | W_OK) != 0)
      return Fail(Code::kUnsupported,
                  "no /dev/loop-control (modprobe loop, or [disk] limit = \"none\" in the configuration)");
  }
  return {};
}

Result<> OpenDirectories(HostResources& h) {
  const Options& o = h.options;
  std::error_code ec;
  std::filesystem::create_directories(o.data, ec);
  if (ec) return FailErrno("create " + o.data, ec.value());
  SB_TRY(h.data, os::OpenPath(o.data, O_RDONLY | O_DIRECTORY));
  SB_TRY(h.run, os::EnsureDir(h.data.get(), "run", 0750, 0, o.daemon_gid));
  SB_TRY(h.lock, os::OpenInside(h.run.get(), "lock", O_RDWR | O_CREAT, 0600));
  if (::flock(h.lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Fail(Code::kConflict, "another spawner already serves " + o.data);
    return FailErrno("lock " + o.data);
  }
  if (::ftruncate(h.lock.get(), 0) != 0) return FailErrno("write run/lock");
  SB_TRYV(WriteAll(h.lock.get(), std::to_string(::getpid()) + "\n"));
  SB_TRYV(os::RemoveTree(h.run.get(), "agents"));
  SB_TRY(h.agents, os::EnsureDir(h.run.get(), "agents", 0710, 0, o.daemon_gid));
  return {};
}

// The log's directory may belong to the daemon: never follow what it put there.
Result<> OpenLog(const HostResources& h) {
  if (::mkdirat(h.data.get(), "log", 0750) == 0) {
    if (::fchownat(h.data.get(), "log", h.options.daemon_uid, h.options.daemon_gid, 0) != 0)
      return FailErrno("chown log");
  }
  SB_TRY(Fd dir, os::OpenInside(h.data.get(), "log", O_RDONLY | O_DIRECTORY));
  SB_TRY(Fd file, os::OpenInside(dir.get(), "spawner.log", O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK, 0640));
  struct stat st{};
  if (::fstat(file.get(), &st) != 0) return FailErrno("stat spawner.log");
  if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != 0)
    return Fail(Code::kForbidden, "log/spawner.log is not a file of root: remove it");
  if (::fchown(file.get(), 0, h.options.daemon_gid) != 0) return FailErrno("chown spawner.log");
  log::SetFile("/proc/self/fd/" + std::to_string(file.get()));
  return {};
}

Result<std::string> InstanceId(const HostResources& h) {
  auto file = os::OpenInside(h.data.get(), "instance-id", O_RDONLY);
  if (file) {
    struct stat st{};
    if (::fstat(file->get(), &st) != 0) return FailErrno("stat instance-id");
    SB_TRY(std::string text, ReadAll(file->get(), 64));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    // The id names the control groups that we clean up: one that the daemon chose could name another instance.
    if (S_ISREG(st.st_mode) && st.st_uid == 0 && ValidId(text, 32)) return text;
  }
  std::string id = NewLabel("", 12);
  SB_TRYV(os::WriteFileAt(h.data.get(), "instance-id", id + "\n", 0644));
  return id;
}

Result<> CopyAgent(HostResources& h) {
  SB_TRY(Fd source, os::OpenPath(h.options.guest, O_RDONLY));
  SB_TRY(std::string bytes, ReadAll(source.get(), kMaxAgent));
  SB_TRY(Fd dir, os::OpenPath(kMountDir, O_RDONLY | O_DIRECTORY));
  // Mode 0111 and owned by the host: the file cannot be read from inside (os/machine_init.cc closes the process).
  SB_TRYV(os::WriteFileAt(dir.get(), "agent", bytes, 0111));
  SB_TRY(h.agent, os::OpenInside(dir.get(), "agent", O_PATH));
  if (!h.options.stage.empty()) {
    SB_TRY(std::string stage, os::ReadFile(h.options.stage, kMaxAgent));
    SB_TRYV(os::WriteFileAt(dir.get(), "stage", stage, 0111));
    SB_TRY(h.stage, os::OpenInside(dir.get(), "stage", O_PATH));
  }
  SB_TRY(Fd gvisor, os::EnsureDir(dir.get(), "gvisor", 0755));
  SB_TRYV(os::WriteFileAt(gvisor.get(), "agent", bytes, 0555));
  const auto beside = std::filesystem::path(h.options.guest).parent_path();
  auto library = os::ReadFile(beside / "sandbar-preload.so", kMaxAgent);
  if (library) SB_TRYV(os::WriteFileAt(gvisor.get(), "preload.so", *library, 0555));
  if (!library) log::Warn("guests on gVisor have no sudo: {}", library.error().message);
  // A layer for below all others: the place where the agent is mounted, so that no snapshot gets it, and what makes
  // every program load that library.
  SB_TRY(Fd layer, os::EnsureDir(dir.get(), "below", 0755));
  SB_TRY(Fd tmp, os::EnsureDir(layer.get(), "tmp", 01777));
  SB_TRYV(os::EnsureDir(tmp.get(), ".sandbar", 0755));
  SB_TRY(Fd etc, os::EnsureDir(layer.get(), "etc", 0755));
  if (library) SB_TRYV(os::WriteFileAt(etc.get(), "ld.so.preload", "/tmp/.sandbar/preload.so\n", 0644));
  return {};
}

Result<> BuildMountTree(HostResources& h) {
  std::error_code ec;
  std::filesystem::create_directories(kMountDir, ec);
  if (ec) return FailErrno(std::string("create ") + kMountDir, ec.value());
  std::vector<os::MountOption> options = {{"mode", "0700"}, {"size", "256m"}};
  SB_TRY(Fd tmpfs, os::NewMount("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  SB_TRYV(os::Attach(tmpfs.get(), AT_FDCWD, kMountDir));
  SB_TRY(Fd dir, os::OpenPath(kMountDir, O_RDONLY | O_DIRECTORY));
  for (const char* name :
       {"mp", "proc", "ro", "nothing", "sizes", "dev", "layers", "store", "m", "hidden", "hidden/proc", "hidden/sys"})
    SB_TRYV(os::EnsureDir(dir.get(), name, 0755));
  SB_TRYV(os::WriteFileAt(dir.get(), "empty", "", 0444));
  // A copy of a mount keeps its flags: what is bound over /proc comes from this read-only view.
  SB_TRY(Fd view, os::CloneTree(AT_FDCWD, kMountDir));
  SB_TRYV(
      os::SetMountAttributes(view.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  SB_TRYV(os::Attach(view.get(), AT_FDCWD, std::string(kMountDir) + "/ro"));
  SB_TRY(Fd dev, os::MakeDevTemplate());
  SB_TRYV(os::Attach(dev.get(), AT_FDCWD, std::string(kMountDir) + "/dev"));
  return CopyAgent(h);
}

// Whether agents can answer statfs. The agents of tests do not.
bool TellsDiskFigures(const HostResources& h) {
  if (!h.options.disk_limits || h.stage) return false;
  const char* why_not = nullptr;
  // A process that answers others has to read their memory.
  auto scope = os::ReadFile("/proc/sys/kernel/yama/ptrace_scope", 16);
  if (scope && scope->starts_with('3')) why_not = "kernel.yama.ptrace_scope is 3";
  if (!os::CanTakeStatfsCalls()) why_not = "the kernel lets nobody here answer system calls";
  if (why_not != nullptr) log::Warn("df in class 1 machines shows the store that all share: {}", why_not);
  return why_not == nullptr;
}

void FindCpus(HostResources& h) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) h.cpus.push_back(i);
  }
  h.cpu_use.assign(h.cpus.size(), 0);
}

// Machines of a predecessor that died: kill, and wait until their groups can be removed.
void RemoveLeftoverGroups(os::CgroupTree& tree) {
  for (const auto& name : tree.List()) {
    auto group = tree.OpenExisting(name);
    if (!group) continue;
    log::Info("removing the leftover machine group {}", name);
    for (int i = 0; i < 250; ++i) {
      if (auto r = (*group)->KillAll(); !r) log::Warn("{}: {}", name, r.error().message);
      auto removed = (*group)->Remove();
      if (removed) break;
      if (i == 249) log::Error("{} cannot be removed: {}", name, removed.error().message);
      ::usleep(20'000);
    }
  }
}

void ProtectSelf() {
  // Best effort: a container may have taken the capability to lower the score.
  if (auto fd = os::OpenPath("/proc/self/oom_score_adj", O_WRONLY)) {
    if (auto r = WriteAll(fd->get(), "-900"); !r) log::Debug("oom score: {}", r.error().message);
  }
  ::prctl(PR_SET_DUMPABLE, 0);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

Result<> OpenDisk(HostResources& h) {
  DiskOptions o;
  o.data = h.data.get();
  o.mount_point = std::string(kMountDir) + "/store";
  o.pool_bytes = h.options.disk_pool_bytes;
  o.force_full_quota = h.options.force_fallback.contains("quota");
  auto disk = h.options.disk_limits ? OpenBtrfsDisk(o) : OpenPlainDisk(o);
  if (!disk) return std::unexpected(std::move(disk).error().Context("the machines' disk"));
  h.disk = std::move(*disk);
  return {};
}

void FindMicrovm(HostResources& h) {
  auto agent = os::ReadFile(h.options.guest, kMaxAgent);
  auto vm = agent ? PrepareMicrovm(h.options, *agent) : std::unexpected(agent.error());
  // QEMU opens it in the machine's own control group.
  if (vm && (*vm)->kvm) {
    if (auto allowed = h.cgroups->AllowKvm(); !allowed) vm = std::unexpected(std::move(allowed).error());
  }
  if (vm) h.microvm = std::move(*vm);
  if (!vm) h.no_microvm = vm.error().message;
}

std::string WhyNoNesting(const HostResources& h) {
  if (!h.options.allow_nesting)
    return "containers inside share the host's kernel with more of it in reach: the operator has to set "
           "allow_nesting_on_class1 = true and start the server anew (sandbar down, sandbar up)";
  if (!h.disk->copies_snapshots()) return "containers need [disk] limit = \"btrfs\"";
  if (!h.cgroups->can_delegate()) return "containers need cgroup version 2 mounted (mount -t cgroup2)";
  return {};
}

EngineEntry EntryOf(const EngineTraits& engine, bool usable, std::string why_not, std::string no_nesting) {
  return {engine.id, std::string(engine.name), static_cast<uint8_t>(engine.isolation_class),
          usable,    std::move(why_not),       std::move(no_nesting)};
}

// In the order of the table.
std::vector<EngineEntry> FindEngines(const HostResources& h) {
  std::vector<EngineEntry> engines = {EntryOf(kNamespaces, true, "", WhyNoNesting(h))};
  bool kvm = h.microvm && h.microvm->kvm;
  std::string no_nesting;
  if (h.microvm && !h.microvm->containers)
    no_nesting = "its guest kernel was made without what containers need: make it anew (sandbar kernel cloud)";
  if (h.microvm && !kvm) engines.push_back(EntryOf(kMicrovmEmulated, true, "", no_nesting));
  engines.push_back(EntryOf(kGvisor, static_cast<bool>(h.gvisor.runsc), h.gvisor.why_not,
                            "gVisor as Debian packages it has no nf_tables, which containers need for their networks"));
  std::string why_not = kvm         ? ""
                        : h.microvm ? "KVM does not boot a guest here; there is only microvm-emulated"
                                    : h.no_microvm;
  engines.push_back(EntryOf(kMicrovm, kvm, why_not, no_nesting));
  return engines;
}

}  // namespace

Result<std::unique_ptr<HostResources>> PrepareHost(Options options) {
  SB_TRYV(Probe(options));
  auto h = std::make_unique<HostResources>();
  h->options = std::move(options);
  // First of all: directories opened before would be another mount namespace's.
  SB_TRYV(os::EnterPrivateMountNamespace());
  SB_TRYV(OpenDirectories(*h));
  SB_TRYV(OpenLog(*h));
  SB_TRY(h->instance, InstanceId(*h));
  auto cgroups = os::CgroupTree::Open(h->instance, h->options.host_share);
  if (!cgroups) return std::unexpected(std::move(cgroups).error().Context("control groups"));
  h->cgroups = std::move(*cgroups);
  RemoveLeftoverGroups(*h->cgroups);
  if (!h->options.scanner.empty()) {
    SB_TRY(h->scanner, os::OpenPath(h->options.scanner, O_PATH));
  }
  SB_TRY(h->filter, os::BuildGuestFilter());
  SB_TRY(h->nesting_filter, os::BuildNestingFilter());
  SB_TRYV(BuildMountTree(*h));
  SB_TRY(auto uids, os::UidPool::Open("/run/sandbar/uids"));
  h->uids = std::make_unique<os::UidPool>(std::move(uids));
  SB_TRYV(OpenDisk(*h));
  SB_TRY(h->unmounts, Unmounts::Open());
  LayerOptions layers;
  layers.images = h->options.images;
  layers.mount_dir = std::string(kMountDir) + "/layers";
  layers.site_dir = h->disk->site_path();
  layers.extra_ca = h->options.extra_ca;
  layers.force_loop = h->options.force_fallback.contains("erofs");
  h->layers = std::make_unique<Layers>(std::move(layers));
  h->tells_disk_figures = TellsDiskFigures(*h);
  FindCpus(*h);
  h->gvisor = FindGvisor(*h);
  FindMicrovm(*h);
  h->engines = FindEngines(*h);
  if (h->engines.front().no_nesting.empty()) PrepareHostForNesting();
  ProtectSelf();
  return h;
}

}  // namespace sandbar::spawner
