// Version 2: one tree. A group with controllers for its children holds no processes itself, hence agent/ and cmds/.
#include <fmt/format.h>

#include <algorithm>

#include "os/cgroup_trees.h"

namespace sandbar::os {
namespace {

constexpr const char* kControllers[] = {"cpu", "memory", "pids"};

std::string MaxOr(uint64_t n) {
  return n == 0 ? "max" : std::to_string(n);
}

class Machine2 final : public MachineCgroup {
 public:
  Machine2(CgroupFs* fs, std::string dir, uint64_t share_cpu_quota_us)
      : fs_(fs), dir_(std::move(dir)), share_cpu_quota_us_(share_cpu_quota_us) {}

  Result<> MakeDirs() {
    SB_TRYV(fs_->MakeDir(dir_));
    SB_TRYV(fs_->Write(dir_ + "/cgroup.subtree_control", "+memory +pids"));
    SB_TRYV(fs_->MakeDir(dir_ + "/agent"));
    return fs_->MakeDir(dir_ + "/cmds");
  }

  Result<> SetLimits(const CgroupLimits& limits) override {
    uint64_t quota = CpuQuotaUs(limits.vcpus, share_cpu_quota_us_);
    SB_TRYV(fs_->Write(dir_ + "/cpu.max", fmt::format("{} {}", quota, kCpuPeriodUs)));
    SB_TRYV(fs_->Write(dir_ + "/cpu.weight", std::to_string(100 * std::clamp(limits.vcpus, 1u, 100u))));
    const uint64_t memory = limits.memory_bytes;
    SB_TRYV(fs_->Write(dir_ + "/cmds/memory.max", MaxOr(memory)));
    SB_TRYV(fs_->Write(dir_ + "/memory.max", MaxOr(memory == 0 ? 0 : memory + kAgentMemoryAllowance)));
    if (fs_->Exists(dir_ + "/memory.swap.max")) SB_TRYV(fs_->Write(dir_ + "/memory.swap.max", "0"));
    // One command's memory bomb ends that command, not every process of the machine.
    SB_TRYV(fs_->Write(dir_ + "/memory.oom.group", "0"));
    SB_TRYV(fs_->Write(dir_ + "/cmds/pids.max", MaxOr(limits.pids)));
    return fs_->Write(dir_ + "/pids.max", MaxOr(limits.pids == 0 ? 0 : uint64_t{limits.pids} + kAgentPidsAllowance));
  }

  Result<CgroupUsage> Usage() const override {
    CgroupUsage out;
    SB_TRY(uint64_t cpu_us, fs_->ReadNumber(dir_ + "/cpu.stat", "usage_usec"));
    out.cpu_ns = cpu_us * 1000;
    SB_TRY(out.memory_bytes, fs_->ReadNumber(dir_ + "/memory.current"));
    // memory.peak came with 5.19; before that the present use is the best known lower bound.
    out.memory_peak_bytes = fs_->ReadNumber(dir_ + "/memory.peak").value_or(out.memory_bytes);
    SB_TRY(uint64_t pids, fs_->ReadNumber(dir_ + "/pids.current"));
    out.pids = static_cast<uint32_t>(std::min<uint64_t>(pids, UINT32_MAX));
    SB_TRY(out.oom_kills, fs_->ReadNumber(dir_ + "/memory.events", "oom_kill"));
    return out;
  }

  Result<> Freeze(bool frozen) override {
    Freezer freezer;
    freezer.set = [this](bool on) { return fs_->Write(dir_ + "/cgroup.freeze", on ? "1" : "0"); };
    freezer.frozen = [this]() -> Result<bool> {
      SB_TRY(uint64_t now, fs_->ReadNumber(dir_ + "/cgroup.events", "frozen"));
      return now != 0;
    };
    return FreezeInTurns(freezer, frozen);
  }

  Result<> KillAll() override { return fs_->Write(dir_ + "/cgroup.kill", "1"); }

  Result<bool> Empty() const override {
    SB_TRY(uint64_t populated, fs_->ReadNumber(dir_ + "/cgroup.events", "populated"));
    return populated == 0;
  }

  Result<> Remove() override {
    SB_TRYV(fs_->RemoveTree(dir_ + "/cmds"));
    SB_TRYV(fs_->RemoveDir(dir_ + "/agent"));
    return fs_->RemoveDir(dir_);
  }

  Result<std::vector<Fd>> OpenAgentJoin() const override { return OpenJoin("/agent/cgroup.procs"); }
  Result<std::vector<Fd>> OpenCommandJoin() const override { return OpenJoin("/cmds/cgroup.procs"); }

  Result<CgroupDelegation> Delegate(uint32_t owner) override {
    // No process lives in cmds itself, so its children may have controllers of their own.
    SB_TRYV(fs_->Write(dir_ + "/cmds/cgroup.subtree_control", "+memory +pids"));
    SB_TRYV(MakeDelegated(*fs_, dir_ + "/cmds/guest", owner));
    CgroupDelegation out;
    SB_TRY(out.root, OpenJoin("/cmds/guest/cgroup.procs"));
    SB_TRY(out.agent, OpenAgentJoin());
    SB_TRY(out.commands, OpenJoin("/cmds/guest/init/cgroup.procs"));
    return out;
  }

 private:
  Result<std::vector<Fd>> OpenJoin(const char* file) const {
    SB_TRY(Fd fd, fs_->OpenForJoin(dir_ + file));
    std::vector<Fd> out;
    out.push_back(std::move(fd));
    return out;
  }

  CgroupFs* fs_;  // the tree's
  std::string dir_;
  uint64_t share_cpu_quota_us_;
};

class Tree2 final : public CgroupTree {
 public:
  Tree2(std::unique_ptr<CgroupFs> fs, std::string base, const CgroupTreeOptions& options)
      : fs_(std::move(fs)), base_(std::move(base)), options_(options) {
    dir_ = base_ + "/sandbar/" + options_.instance;
  }

  ~Tree2() override {
    if (fs_->RemoveDir(dir_)) (void)fs_->RemoveDir(base_ + "/sandbar");
  }

  Result<> Prepare(bool leave_base) {
    SB_TRY(std::string have, fs_->Read(base_ + "/cgroup.controllers"));
    std::replace(have.begin(), have.end(), '\n', ' ');
    for (const char* c : kControllers) {
      if ((" " + have + " ").find(fmt::format(" {} ", c)) == std::string::npos) {
        return Fail(Code::kUnsupported, fmt::format("the cgroup controller '{}' is not available in {}", c, base_));
      }
    }
    if (leave_base) SB_TRYV(VacateBase());
    SB_TRYV(Enable(base_));
    SB_TRYV(MakeInstanceDir());
    SB_TRYV(Enable(dir_));
    SB_TRYV(fs_->Write(dir_ + "/cpu.max", fmt::format("{} {}", ShareCpuQuotaUs(options_), kCpuPeriodUs)));
    SB_TRYV(fs_->Write(dir_ + "/memory.max", std::to_string(ShareMemory(options_))));
    return LimitDevices(false);
  }

  Result<> AllowKvm() override { return LimitDevices(true); }
  bool can_delegate() const override { return true; }

  Result<std::unique_ptr<MachineCgroup>> Create(const std::string& machine, const CgroupLimits& limits) override {
    if (!IsCgroupName(machine)) return Fail(Code::kBadRequest, "bad machine name for a cgroup");
    auto group = std::make_unique<Machine2>(fs_.get(), dir_ + "/" + machine, ShareCpuQuotaUs(options_));
    if (auto made = group->MakeDirs(); !made) {
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
    const std::string dir = dir_ + "/" + machine;
    if (!fs_->Exists(dir)) return Fail(Code::kNotFound, "no cgroup for machine " + machine);
    return std::make_unique<Machine2>(fs_.get(), dir, ShareCpuQuotaUs(options_));
  }

  std::vector<std::string> List() const override { return fs_->SubDirs(dir_); }

  std::string Describe() const override { return "v2 cpu,memory,pids,freezer,devices"; }

 private:
  Result<> LimitDevices(bool kvm) {
    SB_TRY(Fd dir, fs_->OpenDir(dir_));
    return fs_->AttachDevices(dir.get(), kvm);
  }
  Result<> Enable(const std::string& dir) {
    auto enabled = fs_->Write(dir + "/cgroup.subtree_control", "+cpu +memory +pids");
    if (!enabled && enabled.error().sys_errno == EBUSY) {
      return Fail(Code::kUnsupported,
                  dir +
                      " holds processes, so its controllers cannot be given to children; in a container, move them to "
                      "a child group first");
    }
    return enabled;
  }

  // A delegated unit's group holds us; its children can get controllers only once it is empty.
  Result<> VacateBase() {
    const std::string leaf = base_ + "/supervisor";
    SB_TRYV(fs_->EnsureDir(leaf));
    SB_TRY(std::string pids, fs_->Read(base_ + "/cgroup.procs"));
    size_t at = 0;
    while (at < pids.size()) {
      size_t end = std::min(pids.find('\n', at), pids.size());
      auto moved = fs_->Write(leaf + "/cgroup.procs", std::string_view(pids).substr(at, end - at));
      // One that ended meanwhile is as good as moved.
      if (!moved && moved.error().sys_errno != ESRCH) return moved;
      at = end + 1;
    }
    return {};
  }

  Result<> MakeInstanceDir() {
    Result<> made;
    // Another instance may remove the common parent in between, because it was empty just then.
    for (int i = 0; i < 10; ++i) {
      SB_TRYV(fs_->EnsureDir(base_ + "/sandbar"));
      if (auto enabled = Enable(base_ + "/sandbar"); !enabled && enabled.error().sys_errno != ENOENT) return enabled;
      made = fs_->EnsureDir(dir_);
      if (made || made.error().sys_errno != ENOENT) return made;
    }
    return made;
  }

  std::unique_ptr<CgroupFs> fs_;
  std::string base_, dir_;
  CgroupTreeOptions options_;
};

}  // namespace

Result<std::unique_ptr<CgroupTree>> OpenCgroup2(std::unique_ptr<CgroupFs> fs, const CgroupMounts& mounts,
                                                const CgroupTreeOptions& options) {
  // In a unit that systemd delegated to us, stay inside it; elsewhere use the root, as container managers without
  // systemd do. Groups that systemd manages itself are not ours to divide.
  // A second start finds itself already in the unit's leaf.
  std::string_view self = mounts.self_v2;
  if (self.ends_with("/supervisor")) self.remove_suffix(std::string_view("/supervisor").size());
  std::string base = mounts.v2 + std::string(self);
  const bool delegated = self.size() > 1 && fs->IsDelegated(base);
  if (!delegated) base = mounts.v2;
  auto tree = std::make_unique<Tree2>(std::move(fs), base, options);
  SB_TRYV(tree->Prepare(delegated));
  return tree;
}

}  // namespace sandbar::os
