// Class 3: the agent is the first program of a virtual machine with a kernel of its own, in a jailed QEMU.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/files.h"
#include "base/ids.h"
#include "os/jail.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/vmm_jail.h"
#include "protocol/vm_config.h"
#include "spawner/disk/memory_file.h"
#include "spawner/disk/vm_disk.h"
#include "spawner/machines/launch.h"
#include "spawner/machines/microvm.h"
#include "spawner/machines/root_dir.h"

namespace sandbar::spawner {
namespace {

constexpr uint64_t kDefaultMemory = 512ULL << 20;
constexpr size_t kMaxDrives = 3;              // eight virtio slots, five of them taken
constexpr uint64_t kOverhead = 384ULL << 20;  // of QEMU itself; most of it translated code
constexpr int64_t kStartLimitMs = 600'000;    // the first use of an image merges its layers
constexpr uint32_t kThreads = 128;            // 64 of them for the disk
constexpr size_t kMaxWords = 600;
constexpr size_t kMaxFile = 16 << 20;

// Files of the site layers: trust store, resolv.conf, host name.
Result<> AddFiles(int dir, const std::string& prefix, std::vector<VmFile>& out) {
  SB_TRY(auto names, os::ListDir(dir));
  for (const std::string& name : names) {
    struct stat st{};
    if (::fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("stat " + name);
    std::string path = prefix + name;
    if (S_ISDIR(st.st_mode)) {
      SB_TRY(Fd below, os::OpenInside(dir, name, O_RDONLY | O_DIRECTORY));
      SB_TRYV(AddFiles(below.get(), path + "/", out));
    } else if (S_ISREG(st.st_mode)) {
      SB_TRY(Fd file, os::OpenInside(dir, name, O_RDONLY));
      SB_TRY(std::string bytes, ReadAll(file.get(), kMaxFile));
      out.push_back({std::move(path), st.st_mode & 0777, std::move(bytes)});
    }
  }
  return {};
}

Result<std::string> MakeConfig(const LaunchInput& in, const LayerSet& layers, const ConfigureReq& request,
                               bool restored) {
  VmConfig config;
  config.nesting = in.facts->nesting;
  config.hostname = HostnameOf(request);
  config.entropy.resize(256);
  FillRandom(config.entropy.data(), config.entropy.size());
  config.pids = in.limits.pids;
  config.key = in.facts->agent_key;
  config.restored = restored;
  for (const DriveMount& mount : request.mounts)
    config.drives.push_back({mount.path, mount.writable, mount.uid, mount.gid});
  // Of this machine alone. An image has none, or one that all machines would share.
  std::string id(16, '\0');
  FillRandom(id.data(), id.size());
  config.files.push_back({"etc/machine-id", 0444, Hex(id) + "\n"});
  // The two topmost are ours (Layers::Prepare); a later file of the same name would win, so the lower one first.
  for (size_t i : {size_t{1}, size_t{0}}) {
    SB_TRY(Fd dir, os::OpenPath(layers.paths.at(i), O_RDONLY | O_DIRECTORY));
    SB_TRYV(AddFiles(dir.get(), "", config.files));
  }
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  config.clock_ns = static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  return EncodeVmConfig(config);
}

// One end of a socket pair whose other end already holds the bytes: nobody has to wait for the guest to take them.
Result<Fd> Filled(const std::string& bytes, Fd* keep_open) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return FailErrno("socketpair");
  *keep_open = Fd(pair[0]);
  Fd other(pair[1]);
  int room = static_cast<int>(bytes.size() * 2 + (1 << 20));
  if (::setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0) return FailErrno("socket buffer");
  ssize_t n = ::send(pair[0], bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n != static_cast<ssize_t>(bytes.size())) return Fail(Code::kTooLarge, "the machine's configuration is too long");
  return other;
}

class MicrovmLaunch : public Launch {
 public:
  os::CgroupLimits GroupLimits(const Limits& limits) const override {
    // What the guest may have is the machine's own business; these are QEMU's threads and memory.
    // Twice: a page of the template that is read before it is written is counted here too, in the template's own file,
    // where it serves the next machine.
    uint64_t memory = limits.memory_bytes == 0 ? 0 : 2 * limits.memory_bytes + kOverhead;
    return {limits.vcpus, memory, kThreads + limits.vcpus};
  }
  // The device's size is the limit. Somebody who makes it take more than this gets errors, and nobody else does.
  uint64_t SlotLimit(const Limits& limits) const override {
    return VmSlotLimit(VmDiskBytes(limits.disk_bytes)) + copied_;
  }
  int64_t StartLimitMs() const override { return kStartLimitMs; }
  bool block() const override { return true; }

  Result<os::Child> Start(const LaunchInput& in, const ConfigureReq& request) override {
    if (request.mounts.size() > kMaxDrives)
      return Fail(Code::kUnsupported, "a microVM has room for 3 drives: it has 8 virtio slots, and 5 are taken");
    SB_TRY(auto layers, in.host->layers->Prepare(request.layers, request.image_digest, HostnameOf(request)));
    host_layer_ = layers.host;
    if (!request.snapshots.empty() && !in.host->disk->copies_snapshots())
      return Fail(Code::kUnsupported, "microVMs go on from snapshots on the btrfs store only");
    bool fresh = false;
    SB_TRY(Fd disk, OpenVmDisk(in.resources->disk, VmDiskBytes(in.limits.disk_bytes), &fresh));
    std::vector<DriveDevice> drives;
    SB_TRYV(OpenDrives(in, request, drives));
    has_drives_ = !drives.empty();
    VmSize size = SizeOf(in.limits);
    size.drives = drives.size();
    SB_TRYV(FindMemory(in, request));
    const VmTemplate* from = memory_ ? nullptr : FindTemplate(*in.host->microvm, size);
    SB_TRY(std::string config_bytes, MakeConfig(in, layers, request, from != nullptr));
    SB_TRY(Fd config, Filled(config_bytes, &config_));
    SB_TRY(auto join, in.resources->group->OpenAgentJoin());
    SB_TRY(Fd jail_tree, os::CloneTree(AT_FDCWD, in.host->microvm->jail_tree, true));
    auto image = OpenMergedImage(*in.host, request.layers, request.image_digest);

    os::VmmPlan plan;
    for (const Fd& fd : join) plan.join.push_back(fd.get());
    plan.cpus = in.cpus;
    plan.root = jail_tree.get();
    plan.mount_point = InMountDir("mp");
    plan.uid = in.resources->identity.lease.base();
    plan.gid = plan.uid;
    plan.program = in.host->microvm->program.get();
    plan.argv = QemuMachine(*in.host->microvm, size, from != nullptr ? QemuMemory::kCopy : QemuMemory::kOwn, true);
    plan.env = {kQemuModules};
    errors_ = Fd(::memfd_create("errors", MFD_CLOEXEC));
    plan.errors = errors_.get();
    SB_TRY(plan.largest_file, SizeOf(disk.get()));
    sock_fprog filter{static_cast<unsigned short>(in.host->microvm->filter.size()),
                      const_cast<sock_filter*>(in.host->microvm->filter.data())};
    plan.filter = &filter;
    // In this order they become 3, 4, …: see QemuMachine.
    plan.keep = {image ? image->get() : -1, disk.get(), in.listener, config.get(), in.resources->net.tap.get()};
    SB_TRYV(from != nullptr ? Continue(*from, plan) : Control(plan));
    for (size_t i = 0; i < drives.size(); ++i) {
      std::vector<std::string> words = QemuDrive(i, 3 + plan.keep.size());
      plan.argv.insert(plan.argv.end(), words.begin(), words.end());
      plan.keep.push_back(drives[i].disk.get());
      plan.largest_file = std::max(plan.largest_file, drives[i].bytes);
    }
    std::vector<std::string> merge(layers.paths.begin() + 2, layers.paths.end());
    plan.prepare = [&](os::VmmPlan& p) -> Result<> {
      // Before anything of it runs.
      if (memory_) SB_TRYV(CheckMemory(memory_.get(), header_));
      if (fresh) SB_TRYV(FormatVmDisk(disk.get()));
      for (const DriveDevice& drive : drives) SB_TRYV(FinishVmDrive(drive));
      if (image) return {};
      SB_TRY(Fd made, MergeImage(*in.host, request.layers, request.image_digest, merge));
      p.keep[0] = made.Release();
      return {};
    };
    return os::StartVmm(std::move(plan));
  }

  std::string LastWords() override {
    std::string text(kMaxWords, '\0');
    ssize_t n = errors_ ? ::pread(errors_.get(), text.data(), text.size(), 0) : 0;
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    for (char& c : text)
      if (c < ' ' || c > '~') c = ' ';
    return text;
  }
  void LetGo() override {
    state_.Reset();
    memory_.Reset();
    control_qemu_.Reset();
  }
  Result<bool> ReadStatus(int status) override {
    auto ready = os::ReadJailStatus(status);
    // The process can only say it in words.
    if (!ready && header_.bytes != 0) ready.error().code = Code::kConflict;
    return ready;
  }
  Result<MemorySource> ForMemorySnapshot() const override {
    if (!control_) return Fail(Code::kUnavailable, "the machine is still starting");
    if (has_drives_)
      return Fail(Code::kUnsupported, "a machine with drives cannot be kept with its memory: they are not copied");
    // An emulator's own threads keep the list of changed pages; whether it is whole is not worth finding out.
    return MemorySource{control_.get(), on_kvm_, needs_};
  }

 private:
  static VmSize SizeOf(const Limits& limits) {
    uint64_t memory = limits.memory_bytes == 0 ? kDefaultMemory : limits.memory_bytes;
    return {std::max<uint64_t>(memory >> 20, 128), std::max(limits.vcpus, 1U)};
  }

  Result<> OpenDrives(const LaunchInput& in, const ConfigureReq& request, std::vector<DriveDevice>& out) {
    for (const DriveMount& mount : request.mounts) {
      SB_TRY(uint64_t copied, CopiedBytes(*in.host, mount));
      copied_ += copied;
    }
    if (copied_ != 0) SB_TRYV(in.host->disk->SetLimit(in.resources->disk, SlotLimit(in.limits), 0));
    for (const DriveMount& mount : request.mounts) {
      SB_TRY(auto drive, OpenVmDrive(*in.host, in.resources->disk, mount));
      out.push_back(std::move(drive));
    }
    return {};
  }
  static Result<uint64_t> SizeOf(int disk) {
    struct stat st{};
    if (::fstat(disk, &st) != 0) return FailErrno("stat the disk");
    return static_cast<uint64_t>(st.st_size);
  }

  // What a memory that is saved now will need, and the one that this machine goes on with, if it does.
  Result<> FindMemory(const LaunchInput& in, const ConfigureReq& request) {
    const Microvm& vm = *in.host->microvm;
    const VmSize size = SizeOf(in.limits);
    on_kvm_ = vm.kvm;
    const EngineTraits& engine = vm.kvm ? kMicrovm : kMicrovmEmulated;
    needs_ = {std::string(engine.name), vm.version, vm.cpu, vm.kernel, "", size.mib, size.vcpus};
    Checksum devices;
    bool append = false;
    for (const std::string& word : QemuMachine(vm, size, QemuMemory::kOwn, true)) {
      // The kernel has read its command line; the rest has to be there again.
      if (!append) devices.Add(word + "\n");
      append = word == "-append";
    }
    // A kernel that was told of containers, or not, is told so once.
    devices.Add(in.facts->nesting ? "nesting" : "");
    needs_.devices = devices.Hex();
    if (!request.memory) return {};
    if (request.snapshots.empty()) return Fail(Code::kBadRequest, "memory of which snapshot?");
    SB_TRY(memory_, in.host->disk->OpenMemory(request.snapshots.front()));
    SB_TRY(header_, ReadMemoryHeader(memory_.get()));
    return CheckNeeds(header_.needs, needs_);
  }

  // A machine that boots, or goes on with a memory of its own.
  Result<> Control(os::VmmPlan& plan) {
    SB_TRY(control_qemu_, Filled("", &control_));
    const std::string fd = std::to_string(3 + plan.keep.size());
    plan.keep.push_back(control_qemu_.get());
    plan.argv.insert(plan.argv.end(),
                     {"-chardev", "socket,id=control,fd=" + fd, "-mon", "chardev=control,mode=control"});
    if (!memory_) return {};
    plan.argv.insert(plan.argv.end(), {"-incoming", "fd:" + std::to_string(3 + plan.keep.size())});
    plan.keep.push_back(memory_.get());
    return {};
  }

  // From the template, if there is one by now.
  Result<> Continue(const VmTemplate& from, os::VmmPlan& plan) {
    // Each its own position in the file.
    SB_TRY(state_, os::OpenPath("/proc/self/fd/" + std::to_string(from.state.get()), O_RDONLY));
    SB_TRY(control_qemu_, Filled(RestoreCommands(9), &control_));
    plan.keep.insert(plan.keep.end(), {from.ram.get(), state_.get(), control_qemu_.get()});
    plan.argv.insert(plan.argv.end(), {"-incoming", "defer", "-chardev", "socket,id=control,fd=10", "-mon",
                                       "chardev=control,mode=control"});
    return {};
  }

  uint64_t copied_ = 0;      // of drives that it may only read
  Fd state_, control_qemu_;  // until it has them
  Fd control_;               // our end: for those who take snapshots of it
  bool has_drives_ = false, on_kvm_ = false;
  Fd memory_;            // that it goes on with
  MemoryHeader header_;  // of that one
  MemoryNeeds needs_;
  std::shared_ptr<SiteDir> host_layer_;  // shared with the other machines of this host name
  Fd errors_;                            // what QEMU says; in its own memory limit
  Fd config_;                            // our end: when it closes, QEMU forgets what the guest has not read yet
};

}  // namespace

std::unique_ptr<Launch> NewMicrovmLaunch() {
  return std::make_unique<MicrovmLaunch>();
}

}  // namespace sandbar::spawner
