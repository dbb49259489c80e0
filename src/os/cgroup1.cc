// Version 1: one hierarchy per controller (or a few co-mounted). Only those with memory or pids are split into agent
// and cmds; in the others a machine is one group, so a command has to join two groups and not six.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "os/cgroup_trees.h"

namespace sandbar::os {
namespace {

struct Hierarchy {
  std::string dir;  // of the instance: <mount>/sandbar/<instance>
  std::vector<std::string> controllers;

  bool Has(std::string_view name) const {
    return std::find(controllers.begin(), controllers.end(), name) != controllers.end();
  }
  bool IsSplit() const { return Has("memory") || Has("pids"); }
};

// Shared by the tree and its machines; the tree outlives them.
struct Layout {
  std::unique_ptr<CgroupFs> fs;
  std::vector<Hierarchy> hierarchies;
  uint64_t share_cpu_quota_us = 0;
  std::string instance;
  std::string unified;  // <version 2 mount>/sandbar/<instance>, for what is delegated; empty: none is mounted

  const Hierarchy* Find(std::string_view controller) const {
    for (const auto& h : hierarchies) {
      if (h.Has(controller)) return &h;
    }
    return nullptr;
  }
};

// null, zero, full, random, urandom, tty, ptmx, pts: what the machine's /dev has, and no mknod ("m") of anything.
constexpr const char* kAllowedDevices[] = {"c 1:3 rw", "c 1:5 rw", "c 1:7 rw", "c 1:8 rw",
                                           "c 1:9 rw", "c 5:0 rw", "c 5:2 rw", "c 136:* rw"};

std::string Number(uint64_t n) {
  return n == 0 ? "-1" : std::to_string(n);
}

// The kernel wants memory <= memory+swap at every moment, so the order depends on the direction of the change.
Result<> WriteMemoryLimit(CgroupFs& fs, const std::string& dir, uint64_t bytes) {
  const std::string limit = dir + "/memory.limit_in_bytes";
  const std::string with_swap = dir + "/memory.memsw.limit_in_bytes";
  if (!fs.Exists(with_swap)) return fs.Write(limit, Number(bytes));
  if (!fs.Write(limit, Number(bytes))) {
    SB_TRYV(fs.Write(with_swap, Number(bytes)));
    return fs.Write(limit, Number(bytes));
  }
  return fs.Write(with_swap, Number(bytes));
}

class Machine1 final : public MachineCgroup {
 public:
  Machine1(Layout* layout, std::string name) : layout_(layout), name_(std::move(name)) {}

  Result<> MakeDirs() {
    for (const auto& h : layout_->hierarchies) {
      SB_TRYV(fs().MakeDir(Dir(h)));
      if (!h.IsSplit()) continue;
      SB_TRYV(fs().MakeDir(Dir(h) + "/agent"));
      SB_TRYV(fs().MakeDir(Dir(h) + "/cmds"));
    }
    return {};
  }

  Result<> SetLimits(const CgroupLimits& limits) override {
    if (const auto* h = layout_->Find("cpu")) {
      uint64_t quota = CpuQuotaUs(limits.vcpus, layout_->share_cpu_quota_us);
      SB_TRYV(fs().Write(Dir(*h) + "/cpu.cfs_quota_us", std::to_string(quota)));
      SB_TRYV(fs().Write(Dir(*h) + "/cpu.shares", std::to_string(1024 * std::clamp(limits.vcpus, 1u, 256u))));
    }
    if (const auto* h = layout_->Find("memory")) SB_TRYV(SetMemory(Dir(*h), limits.memory_bytes));
    if (const auto* h = layout_->Find("pids")) {
      auto text = [](uint64_t n) { return n == 0 ? std::string("max") : std::to_string(n); };
      uint64_t total = limits.pids == 0 ? 0 : uint64_t{limits.pids} + kAgentPidsAllowance;
      SB_TRYV(fs().Write(Dir(*h) + "/cmds/pids.max", text(limits.pids)));
      SB_TRYV(fs().Write(Dir(*h) + "/pids.max", text(total)));
    }
    return {};
  }

  Result<CgroupUsage> Usage() const override {
    CgroupUsage out;
    if (const auto* h = layout_->Find("cpuacct")) {
      SB_TRY(out.cpu_ns, fs().ReadNumber(Dir(*h) + "/cpuacct.usage"));
    }
    if (const auto* h = layout_->Find("memory")) {
      SB_TRY(out.memory_bytes, fs().ReadNumber(Dir(*h) + "/memory.usage_in_bytes"));
      SB_TRY(out.memory_peak_bytes, fs().ReadNumber(Dir(*h) + "/memory.max_usage_in_bytes"));
      // Version 1 counts a kill only in the victim's own group.
      SB_TRY(uint64_t in_cmds, fs().ReadNumber(Dir(*h) + "/cmds/memory.oom_control", "oom_kill"));
      SB_TRY(uint64_t in_agent, fs().ReadNumber(Dir(*h) + "/agent/memory.oom_control", "oom_kill"));
      out.oom_kills = in_cmds + in_agent;
    }
    if (const auto* h = layout_->Find("pids")) {
      SB_TRY(uint64_t pids, fs().ReadNumber(Dir(*h) + "/pids.current"));
      out.pids = static_cast<uint32_t>(std::min<uint64_t>(pids, UINT32_MAX));
    }
    return out;
  }

  Result<> Freeze(bool frozen) override {
    const auto* h = layout_->Find("freezer");
    if (h == nullptr) return Fail(Code::kUnsupported, "this host has no freezer controller");
    return FreezeInTurns(FreezerOf(*h), frozen);
  }

  Result<> KillAll() override {
    // Frozen members cannot fork away between the listing and the signal. A hung one must not stop the others' end, and
    // the caller's other machines do not wait for it long.
    const auto* freezer = layout_->Find("freezer");
    for (int round = 0; round < 20; ++round) {
      if (freezer != nullptr) (void)TryFreeze(FreezerOf(*freezer), true, 20);
      int killed = 0;
      for (const auto& h : layout_->hierarchies) {
        const std::string group = "/sandbar/" + layout_->instance + "/" + name_;
        for (const auto& dir : Leaves(h)) killed += KillListed(fs(), dir + "/cgroup.procs", h.controllers[0], group);
      }
      if (freezer != nullptr) SB_TRYV(FreezeInTurns(FreezerOf(*freezer), false));
      if (killed == 0) return {};
    }
    return {};
  }

  Result<bool> Empty() const override {
    for (const auto& h : layout_->hierarchies) {
      for (const auto& dir : Leaves(h)) {
        auto text = fs().Read(dir + "/cgroup.procs");
        if (!text && text.error().sys_errno == ENOENT) continue;
        if (!text) return std::unexpected(std::move(text).error());
        if (!text->empty()) return false;
      }
    }
    return true;
  }

  Result<> Remove() override {
    for (const auto& h : layout_->hierarchies) {
      // Children first.
      if (h.IsSplit()) {
        SB_TRYV(fs().RemoveDir(Dir(h) + "/cmds"));
        SB_TRYV(fs().RemoveDir(Dir(h) + "/agent"));
      }
      SB_TRYV(fs().RemoveDir(Dir(h)));
    }
    return layout_->unified.empty() ? Result<>{} : fs().RemoveTree(layout_->unified + "/" + name_);
  }

  Result<std::vector<Fd>> OpenAgentJoin() const override {
    std::vector<Fd> out;
    for (const auto& h : layout_->hierarchies) {
      SB_TRY(Fd fd, fs().OpenForJoin(Dir(h) + (h.IsSplit() ? "/agent/tasks" : "/tasks")));
      out.push_back(std::move(fd));
    }
    return out;
  }

  Result<std::vector<Fd>> OpenCommandJoin() const override {
    std::vector<Fd> out;
    for (const auto& h : layout_->hierarchies) {
      if (!h.IsSplit()) continue;
      SB_TRY(Fd fd, fs().OpenForJoin(Dir(h) + "/cmds/tasks"));
      out.push_back(std::move(fd));
    }
    return out;
  }

  // The limits are version 1's, where every process of the machine stays; the subtree of version 2 has no controllers
  // and serves to tell containers apart.
  Result<CgroupDelegation> Delegate(uint32_t owner) override {
    const std::string dir = layout_->unified + "/" + name_;
    if (layout_->unified.empty()) return Fail(Code::kUnsupported, "no cgroup hierarchy of version 2 is mounted");
    SB_TRYV(fs().MakeDir(dir));
    SB_TRYV(fs().MakeDir(dir + "/agent"));
    SB_TRYV(MakeDelegated(fs(), dir + "/guest", owner));
    CgroupDelegation out;
    SB_TRY(Fd root, fs().OpenForJoin(dir + "/guest/cgroup.procs"));
    out.root.push_back(std::move(root));
    SB_TRY(Fd agent, fs().OpenForJoin(dir + "/agent/cgroup.procs"));
    out.agent.push_back(std::move(agent));
    SB_TRY(out.commands, OpenCommandJoin());
    SB_TRY(Fd init, fs().OpenForJoin(dir + "/guest/init/cgroup.procs"));
    out.commands.push_back(std::move(init));
    return out;
  }

 private:
  CgroupFs& fs() const { return *layout_->fs; }
  std::string Dir(const Hierarchy& h) const { return h.dir + "/" + name_; }

  Freezer FreezerOf(const Hierarchy& h) const {
    const std::string file = Dir(h) + "/freezer.state";
    Freezer out;
    out.set = [this, file](bool on) { return fs().Write(file, on ? "FROZEN" : "THAWED"); };
    // Reading makes the kernel look again.
    out.frozen = [this, file]() -> Result<bool> {
      SB_TRY(std::string state, fs().Read(file));
      return state.starts_with("FROZEN");
    };
    return out;
  }

  std::vector<std::string> Leaves(const Hierarchy& h) const {
    if (!h.IsSplit()) return {Dir(h)};
    return {Dir(h), Dir(h) + "/agent", Dir(h) + "/cmds"};
  }

  Result<> SetMemory(const std::string& dir, uint64_t bytes) {
    SB_TRYV(WriteMemoryLimit(fs(), dir + "/cmds", bytes));
    SB_TRYV(WriteMemoryLimit(fs(), dir, bytes == 0 ? 0 : bytes + kAgentMemoryAllowance));
    // Socket buffers are outside the limit in version 1 unless they get one of their own, and they are counted only
    // in a group that was given one: a limit on the parent alone counts nothing.
    for (const char* part : {"/cmds", "/agent", ""}) {
      const std::string tcp = dir + part + "/memory.kmem.tcp.limit_in_bytes";
      if (bytes == 0 || !fs().Exists(tcp)) continue;
      uint64_t buffers = std::clamp<uint64_t>(bytes / 8, 16ull << 20, 256ull << 20);
      SB_TRYV(fs().Write(tcp, std::to_string(buffers)));
    }
    return {};
  }

  Layout* layout_;
  std::string name_;
};

class Tree1 final : public CgroupTree {
 public:
  explicit Tree1(std::unique_ptr<Layout> layout) : layout_(std::move(layout)) {}

  // Leaves nothing behind when no machine is left; with machines the kernel refuses and they live on.
  ~Tree1() override {
    for (const auto& h : layout_->hierarchies) {
      if (layout_->fs->RemoveDir(h.dir)) (void)layout_->fs->RemoveDir(h.dir.substr(0, h.dir.rfind('/')));
    }
    const std::string& unified = layout_->unified;
    if (!unified.empty() && layout_->fs->RemoveDir(unified))
      (void)layout_->fs->RemoveDir(unified.substr(0, unified.rfind('/')));
  }

  Result<> Prepare(const CgroupTreeOptions& options) {
    if (!layout_->unified.empty()) {
      auto made = MakeInstanceDir(layout_->unified);
      if (!made) log::Warn("no groups of version 2 for containers: {}", made.error().message);
      if (!made) layout_->unified.clear();
    }
    for (const auto& h : layout_->hierarchies) {
      SB_TRYV(MakeInstanceDir(h.dir));
      if (h.Has("cpu")) {
        SB_TRYV(layout_->fs->Write(h.dir + "/cpu.cfs_period_us", std::to_string(kCpuPeriodUs)));
        SB_TRYV(layout_->fs->Write(h.dir + "/cpu.cfs_quota_us", std::to_string(layout_->share_cpu_quota_us)));
      }
      if (h.Has("memory")) SB_TRYV(WriteMemoryLimit(*layout_->fs, h.dir, ShareMemory(options)));
      if (h.Has("devices")) SB_TRYV(LimitDevices(h.dir));
    }
    return {};
  }

  Result<std::unique_ptr<MachineCgroup>> Create(const std::string& machine, const CgroupLimits& limits) override {
    if (!IsCgroupName(machine)) return Fail(Code::kBadRequest, "bad machine name for a cgroup");
    auto group = std::make_unique<Machine1>(layout_.get(), machine);
    if (auto made = group->MakeDirs(); !made) {
      // kConflict on the first directory means that it is somebody's: leave it.
      if (made.error().code != Code::kConflict) (void)group->Remove();
      return std::unexpected(std::move(made).error());
    }
    if (auto set = group->SetLimits(limits); !set) {
      (void)group->Remove();
      return std::unexpected(std::move(set).error());
    }
    return group;
  }

  Result<std::unique_ptr<MachineCgroup>> OpenExisting(const std::string& machine) override {
    if (!IsCgroupName(machine)) return Fail(Code::kBadRequest, "bad machine name for a cgroup");
    auto names = List();
    if (!std::binary_search(names.begin(), names.end(), machine)) {
      return Fail(Code::kNotFound, "no cgroup for machine " + machine);
    }
    return std::make_unique<Machine1>(layout_.get(), machine);
  }

  Result<> AllowKvm() override {
    const auto* h = layout_->Find("devices");
    return h == nullptr ? Result<>{} : layout_->fs->Write(h->dir + "/devices.allow", "c 10:232 rw");
  }

  bool can_delegate() const override { return !layout_->unified.empty(); }

  // The union over all hierarchies: a crash in the middle of Create or Remove leaves some of them.
  std::vector<std::string> List() const override {
    std::vector<std::string> out;
    for (const auto& h : layout_->hierarchies) {
      for (auto& name : layout_->fs->SubDirs(h.dir)) out.push_back(std::move(name));
    }
    if (!layout_->unified.empty())
      for (auto& name : layout_->fs->SubDirs(layout_->unified)) out.push_back(std::move(name));
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  std::string Describe() const override {
    std::string out = "v1 ";
    for (const auto& h : layout_->hierarchies) {
      for (const auto& c : h.controllers) out += c + ",";
    }
    out.pop_back();
    return out;
  }

 private:
  // Another instance may remove the common parent between the two calls, because it was empty just then.
  Result<> MakeInstanceDir(const std::string& dir) {
    Result<> made;
    for (int i = 0; i < 10; ++i) {
      SB_TRYV(layout_->fs->EnsureDir(dir.substr(0, dir.rfind('/'))));
      made = layout_->fs->EnsureDir(dir);
      if (made || made.error().sys_errno != ENOENT) return made;
    }
    return made;
  }

  // Machines inherit the instance's list when they are made. The kernel takes "deny all" only without children, so a
  // restarted spawner that finds machines checks instead.
  Result<> LimitDevices(const std::string& dir) {
    SB_TRY(std::string list, layout_->fs->Read(dir + "/devices.list"));
    if (list.starts_with("a ")) SB_TRYV(layout_->fs->Write(dir + "/devices.deny", "a"));
    for (const char* device : kAllowedDevices) SB_TRYV(layout_->fs->Write(dir + "/devices.allow", device));
    return {};
  }

  std::unique_ptr<Layout> layout_;
};

}  // namespace

Result<std::unique_ptr<CgroupTree>> OpenCgroup1(std::unique_ptr<CgroupFs> fs, const CgroupMounts& mounts,
                                                const CgroupTreeOptions& options) {
  auto layout = std::make_unique<Layout>();
  layout->fs = std::move(fs);
  layout->instance = options.instance;
  layout->share_cpu_quota_us = ShareCpuQuotaUs(options);
  for (const auto& m : mounts.v1)
    layout->hierarchies.push_back({m.dir + "/sandbar/" + options.instance, m.controllers});
  if (!mounts.v2.empty()) layout->unified = mounts.v2 + "/sandbar/" + options.instance;
  for (const char* needed : {"cpu", "memory", "pids"}) {
    // A limit that cannot be enforced must not be promised.
    if (layout->Find(needed) == nullptr) {
      return Fail(Code::kUnsupported, fmt::format("the cgroup controller '{}' is not mounted", needed));
    }
  }
  for (const char* wanted : {"freezer", "devices", "cpuacct"}) {
    if (layout->Find(wanted) == nullptr) log::Warn("cgroup controller {} is not mounted", wanted);
  }
  auto tree = std::make_unique<Tree1>(std::move(layout));
  SB_TRYV(tree->Prepare(options));
  return tree;
}

}  // namespace sandbar::os
