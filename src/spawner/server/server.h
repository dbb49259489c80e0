// The spawner's loop: one listening socket, one daemon connection, the processes of all machines, their deadlines.
// Single thread, level-triggered epoll; no handler waits for anything.
//
// It supervises: machines and their listeners stay when the daemon goes, and the next daemon gets them back by Attach.
// With no daemon a machine is killed at its deadline; with one, ten seconds later (the daemon stops it gracefully
// first).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/host_resources.h"
#include "spawner/jobs/job.h"
#include "spawner/jobs/jobs.h"
#include "spawner/machines/machine.h"
#include "spawner/machines/resources.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

class Server {
 public:
  explicit Server(HostResources* host);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // The socket accepts connections when this returns.
  Result<> Start();
  // Until Shutdown, SIGTERM or, when ephemeral, the end of the daemon's connection. Also when the data directory was
  // deleted and neither a machine nor a daemon is left.
  Result<> Run();

 private:
  struct Outgoing {
    std::string bytes;
    std::vector<Fd> fds;
  };
  // A reply that a machine owes: which request, of which connection.
  struct Owed {
    uint32_t tag = 0;
    uint64_t connection = 0;
  };
  struct Slot {
    std::unique_ptr<Machine> machine;
    uint64_t serial = 0;
    std::optional<Owed> configure;
    std::optional<ConfigureReq> waits;  // for a copy of its snapshot
    std::vector<Owed> destroy;
    Fd measured;              // reports of the MeasureJob that works on its disk
    int64_t look_at = 0;      // when to look at its disk again
    int64_t start_limit = 0;  // when a machine that still has not exec'd is given up
  };

  // What an event of epoll is about: the kind in the low three bits, above them the serial of a machine or a job.
  enum class Kind : uint64_t { kListener, kPeer, kTimer, kSignals, kPidfd, kStatus, kJob, kMeasured };
  static constexpr uint64_t Key(Kind kind, uint64_t serial = 0) { return serial << 3 | static_cast<uint64_t>(kind); }
  static ErrorResp ToResponse(const Error& error) {
    return {static_cast<int32_t>(error.code), error.message, error.sys_errno};
  }

  Result<> Watch(int fd, uint32_t events, uint64_t key);
  void Unwatch(int fd);
  void OnEvent(uint64_t key, uint32_t events);
  void OnAccept();
  void OnReadable();
  void Disconnect(const char* why);
  void Dispatch(TaggedRequest request);
  void Reply(uint32_t tag, Response body, std::vector<Fd> fds = {});
  void ReplyTo(const Owed& owed, Response body);
  ListResp List() const;
  void ReplyError(uint32_t tag, const Error& error);
  void Flush();
  void SendExited(const Machine& machine);

  void Handle(uint32_t tag, const HelloReq& r);
  void Handle(uint32_t tag, const BootReq& r);
  void Handle(uint32_t tag, const ConfigureReq& r);
  void Handle(uint32_t tag, const ListReq& r);
  void Handle(uint32_t tag, const AttachReq& r);
  void Handle(uint32_t tag, const SetLimitsReq& r);
  void Handle(uint32_t tag, const SetDeadlineReq& r);
  void Handle(uint32_t tag, const UsageReq& r);
  void Handle(uint32_t tag, const FreezeReq& r);
  void Handle(uint32_t tag, const DestroyReq& r);
  void Handle(uint32_t tag, const DialReq& r);
  void Handle(uint32_t tag, const ShutdownReq& r);
  void Handle(uint32_t tag, const ListSnapshotsReq& r);
  void Handle(uint32_t tag, const RemoveSnapshotReq& r);
  void Handle(uint32_t tag, const FlattenReq& r);
  void Handle(uint32_t tag, const CreateDriveReq& r);
  void Handle(uint32_t tag, const FreezeDriveReq& r);
  void Handle(uint32_t tag, const RemoveDriveReq& r);
  void Handle(uint32_t tag, const ListDrivesReq& r);
  void Handle(uint32_t tag, const ManifestReq& r);
  void Handle(uint32_t tag, const DiffReq& r);
  void Handle(uint32_t tag, const ToBlockReq& r);
  void Handle(uint32_t tag, const DriveFormatReq& r);
  void Handle(uint32_t tag, const ReplaceDriveReq& r);
  void Handle(uint32_t tag, const LiveSnapshotReq& r);
  void Handle(uint32_t tag, const AssignReq& r);
  void StartScan(uint32_t tag, JobFacts facts, const std::vector<std::string>& words, std::vector<Fd> fds);
  using Group = std::unique_ptr<os::MachineCgroup>;
  Result<Group> GroupFor(JobKind kind);
  void GiveBack(Group group);
  // `make` gets the facts and a control group for the kind of job.
  template <class Make>
  void StartJob(uint32_t tag, JobFacts facts, Make make);
  Result<> AddJob(std::unique_ptr<Job> job, Group group, Jobs::Done done);
  void OnJob(uint64_t serial);
  void StartCopies();
  Result<> StartCopy(Slot& slot);
  void OnCopied(uint64_t slot, Job& job, const Result<>& copied);
  void StartMachine(Slot& slot, const ConfigureReq& request);
  void Refuse(Slot& slot, const Error& error);
  // Looks at the disk figures of machines that began from a snapshot, and starts measurements.
  void WatchDiskLimits(int64_t now, int64_t* next);
  Result<> StartMeasuring(Slot& slot);
  void OnMeasured(Slot& slot);
  void EndMeasuring(Slot& slot);
  void TidyIfNeeded(int64_t now, int64_t* next);
  void TidyAtTheEnd();
  bool DriveInUse(const std::string& name) const;
  BootResp AgentOf(const Machine& machine) const;

  Slot* Find(const std::string& machine);
  void OnMachine(Slot& slot);
  void OnStatus(Slot& slot, bool ended);
  bool Reap(Slot& slot);
  Result<> BeginDestroy(Slot& slot, const std::string& keep_as);
  void DestroyAll();
  // Somebody has deleted the data directory.
  bool DataGone() const;
  // Deadlines and retries; returns how long the loop may sleep, in milliseconds (-1: for ever).
  int Tick();
  void Background();
  void SetTimer(int64_t at);

  HostResources* host_;
  ResourcePool pool_;
  Fd epoll_, listener_, timer_, signals_;
  Fd peer_;
  uint64_t connection_ = 0;  // counts connections: replies owed to an older one are dropped
  std::deque<Outgoing> out_;
  std::map<uint64_t, Slot> slots_;
  Jobs jobs_;
  std::deque<uint64_t> copies_;  // machines whose copy waits for its turn, by serial
  struct Waiting {
    Owed owed;
    ToBlockReq request;
  };
  std::vector<Waiting> conversions_;  // of snapshots that are still settling
  int64_t tidy_at_ = 0;
  int64_t disk_limits_at_ = 0;  // when to look at disks again
  std::map<std::string, uint64_t> by_id_;
  uint64_t next_serial_ = 1;
  bool busy_ = false;       // a machine is starting or ending
  bool background_ = true;  // there may be spare resources to make
  bool stopping_ = false;
  std::optional<Owed> shutdown_;
  std::vector<Owed> lists_;  // answered when what is ending has ended, at list_limit_ at the latest
  int64_t list_limit_ = 0;
  int64_t housekeep_at_ = 0;
  int64_t adjust_at_ = 0;      // when the store's room is looked at again; 0: nobody runs who could use it up
  int64_t connect_limit_ = 0;  // ephemeral: give up when no daemon ever came
};

}  // namespace sandbar::spawner
