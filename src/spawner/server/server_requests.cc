// The handlers of the requests about machines, one each; MemorySnapshot is in server_jobs.cc. They answer at once
// except Configure, List, Destroy and Shutdown, whose answers are owed until a process has started or ended. None does
// work that grows with what guests have written.
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "os/netns.h"
#include "os/process.h"
#include "spawner/server/server.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kMaxMachines = 1100;  // their list fits one message
constexpr int64_t kMaxDeadlineMs = 400LL * 24 * 3600 * 1000;
constexpr int64_t kListWaitMs = 5000;  // one that does not end must not keep a daemon from starting

Error NoSuchMachine() {
  return Fail(Code::kNotFound, "no such machine").error();
}

// A second reference to an open socket: the spawner keeps its own.
Result<Fd> Duplicate(int fd) {
  int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return FailErrno("dup");
  return Fd(copy);
}

Result<std::vector<Fd>> NetworkFds(const Machine& m) {
  std::vector<Fd> fds;
  SB_TRY(Fd tcp, Duplicate(m.net().tcp.get()));
  SB_TRY(Fd dns, Duplicate(m.net().dns.get()));
  fds.push_back(std::move(tcp));
  fds.push_back(std::move(dns));
  return fds;
}

}  // namespace

void Server::Handle(uint32_t tag, const HelloReq& r) {
  if (!SpawnerVersions().Has(r.version))
    return daemon_.ReplyError(tag,
                              Fail(Code::kUnsupported, "the spawner speaks " + Describe(SpawnerVersions())).error());
  daemon_.Reply(tag, HelloResp{r.version, host_->instance, host_->disk->Describe(), host_->cgroups->Describe(),
                               host_->disk->copies_snapshots(), host_->engines});
}

BootResp Server::AgentOf(const Machine& machine) const {
  return {host_->options.data + "/run/agents/" + machine.facts().socket_name(), machine.facts().agent_key};
}

void Server::Handle(uint32_t tag, const BootReq& r) {
  if (by_id_.contains(r.machine)) return daemon_.ReplyError(tag, Fail(Code::kConflict, "the machine exists").error());
  if (slots_.size() >= kMaxMachines) return daemon_.ReplyError(tag, Fail(Code::kTooMany, "too many machines").error());
  auto machine = Machine::Boot(host_, &pool_, r);
  background_ = true;
  if (!machine) return daemon_.ReplyError(tag, machine.error());
  log::Info("machine {} on {}", r.machine, (*machine)->disk().slot().path);
  auto fds = NetworkFds(**machine);
  Slot slot;
  slot.serial = next_serial_++;
  slot.machine = std::move(*machine);
  if (r.deadline_ms > 0) slot.machine->deadline = os::BootTimeMs() + std::min(r.deadline_ms, kMaxDeadlineMs);
  by_id_[r.machine] = slot.serial;
  Slot& kept = slots_.emplace(slot.serial, std::move(slot)).first->second;
  if (!fds) {
    if (auto begun = BeginDestroy(kept, ""); !begun) log::Error("{}", begun.error().message);
    return daemon_.ReplyError(tag, fds.error());
  }
  daemon_.Reply(tag, AgentOf(*kept.machine), std::move(*fds));
}

void Server::Handle(uint32_t tag, const ConfigureReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr) return daemon_.ReplyError(tag, NoSuchMachine());
  for (const DriveMount& mount : r.mounts) {
    // The daemon keeps count; this is for one that lost it.
    if (mount.writable && DriveInUse(mount.drive))
      return daemon_.ReplyError(tag, Fail(Code::kConflict, "another machine has drive " + mount.drive).error());
  }
  if (slot->configure) return daemon_.ReplyError(tag, Fail(Code::kConflict, "the machine is being configured").error());
  auto copy = slot->machine->NeedsCopy(r);
  if (!copy) return daemon_.ReplyError(tag, copy.error());
  slot->configure = daemon_.Owe(tag);
  if (!*copy) return StartMachine(*slot, r);
  slot->waits = r;
  copies_.push_back(slot->serial);
  StartCopies();
}

void Server::Refuse(Slot& slot, const Error& error) {
  slot.machine->LetGoOfDrives();
  if (auto owed = std::exchange(slot.configure, std::nullopt)) daemon_.ReplyTo(*owed, ToResponse(error));
}

void Server::StartMachine(Slot& slot, const ConfigureReq& request) {
  if (auto done = slot.machine->Configure(request); !done) return Refuse(slot, done.error());
  slot.start_limit = os::BootTimeMs() + slot.machine->start_limit_ms();
  auto watch = [&]() -> Result<> {
    auto on_end = [this, serial = slot.serial](uint32_t) { OnMachine(serial); };
    SB_TRY(slot.process, loop_.TryAdd(slot.machine->process().pidfd(), EPOLLIN, on_end));
    return WatchStatus(slot);
  };
  if (auto watched = watch(); !watched) {
    log::Error("machine {}: {}", request.machine, watched.error().message);
    slot.machine->Kill();
  }
}

// A daemon that comes now cannot know whether the one before it had a machine's files kept: what is ending is let end
// first, so that they are there or the machine is. One whose files could not be kept has not ended.
void Server::Handle(uint32_t tag, const ListReq&) {
  if (stopping_) return daemon_.Reply(tag, List());
  lists_.push_back(daemon_.Owe(tag));
  list_limit_ = os::BootTimeMs() + kListWaitMs;
}

ListResp Server::List() const {
  ListResp list;
  for (const auto& [serial, slot] : slots_) {
    if (!slot.machine->Ending()) list.machines.push_back(slot.machine->entry());
  }
  return list;
}

void Server::Handle(uint32_t tag, const AttachReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr || slot->machine->Ending()) return daemon_.ReplyError(tag, NoSuchMachine());
  auto fds = NetworkFds(*slot->machine);
  if (!fds) return daemon_.ReplyError(tag, fds.error());
  daemon_.Reply(tag, AgentOf(*slot->machine), std::move(*fds));
  if (slot->machine->state() > Machine::State::kRunning) SendExited(*slot->machine);
}

void Server::Handle(uint32_t tag, const SetLimitsReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr || slot->machine->state() == Machine::State::kEnding)
    return daemon_.ReplyError(tag, NoSuchMachine());
  if (auto done = slot->machine->SetLimits(r.limits, r.inherited_bytes); !done)
    return daemon_.ReplyError(tag, done.error());
  daemon_.Reply(tag, OkResp{});
}

void Server::Handle(uint32_t tag, const AssignReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr || slot->machine->state() == Machine::State::kEnding)
    return daemon_.ReplyError(tag, NoSuchMachine());
  if (auto done = slot->machine->disk().Assign({r.project, r.project_bytes}); !done)
    return daemon_.ReplyError(tag, done.error());
  daemon_.Reply(tag, OkResp{});
}

void Server::Handle(uint32_t tag, const SetDeadlineReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr) return daemon_.ReplyError(tag, NoSuchMachine());
  if (r.deadline_ms < 0) return daemon_.ReplyError(tag, Fail(Code::kBadRequest, "negative deadline").error());
  slot->machine->deadline = r.deadline_ms == 0 ? 0 : os::BootTimeMs() + std::min(r.deadline_ms, kMaxDeadlineMs);
  daemon_.Reply(tag, OkResp{});
}

void Server::Handle(uint32_t tag, const UsageReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr || slot->machine->state() == Machine::State::kEnding)
    return daemon_.ReplyError(tag, NoSuchMachine());
  auto usage = slot->machine->Usage();
  if (!usage) return daemon_.ReplyError(tag, usage.error());
  if (r.packets) {
    auto dropped = os::DroppedPackets(slot->machine->net().netns.get());
    if (!dropped) return daemon_.ReplyError(tag, dropped.error());
    usage->dropped_packets = *dropped;
  }
  daemon_.Reply(tag, *usage);
}

void Server::Handle(uint32_t tag, const PauseReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr) return daemon_.ReplyError(tag, NoSuchMachine());
  if (auto done = slot->machine->Pause(r.paused); !done) return daemon_.ReplyError(tag, done.error());
  daemon_.Reply(tag, OkResp{});
}

void Server::Handle(uint32_t tag, const DestroyReq& r) {
  Slot* slot = Find(r.machine);
  // Destroying twice is fine: the first answer may have been lost with its connection.
  if (slot == nullptr) {
    if (r.keep_as.empty() || host_->disk->SnapshotLayer(r.keep_as)) return daemon_.Reply(tag, UsageResp{});
    return daemon_.ReplyError(tag, NoSuchMachine());
  }
  if (auto begun = BeginDestroy(*slot, r.keep_as); !begun) return daemon_.ReplyError(tag, begun.error());
  slot->destroy.push_back(daemon_.Owe(tag));
}

bool Server::DriveInUse(const std::string& name) const {
  return std::ranges::any_of(slots_, [&](const auto& s) { return s.second.machine->Uses(name); });
}

void Server::Handle(uint32_t tag, const DialReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr || slot->machine->state() != Machine::State::kRunning)
    return daemon_.ReplyError(tag, NoSuchMachine());
  // Port 1 is ours: whoever could dial it would speak to the egress proxy as the machine.
  if (r.port < 2 || r.port > 65535) return daemon_.ReplyError(tag, Fail(Code::kBadRequest, "bad port").error());
  if (!slot->machine->facts().engine->host_dials_loopback || slot->machine->facts().nesting)
    return daemon_.ReplyError(tag,
                              Fail(Code::kUnsupported, "this machine's loopback is reached through its agent").error());
  auto fd = os::DialIn(slot->machine->net().netns.get(), static_cast<uint16_t>(r.port), r.ipv6);
  if (!fd) return daemon_.ReplyError(tag, fd.error());
  std::vector<Fd> fds;
  fds.push_back(std::move(*fd));
  daemon_.Reply(tag, OkResp{}, std::move(fds));
}

void Server::Handle(uint32_t tag, const ShutdownReq&) {
  log::Info("asked to end by the daemon");
  shutdown_ = daemon_.Owe(tag);
  stopping_ = true;
  DestroyAll();
}

}  // namespace sandbar::spawner
