// The spawner: serves the daemon's requests (daemon_connection.h), supervises the processes of all machines and their
// deadlines, and starts jobs (jobs/jobs.h). Requests about snapshots and drives are DiskRequests' (disk_requests.h).
// Single thread on one event loop; no handler waits for anything.
//
// Machines and their listeners stay when the daemon goes, and the next daemon gets them back by Attach. With no daemon
// a machine is killed at its deadline; with one, ten seconds later, because the daemon stops it gracefully first.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"
#include "base/result.h"
#include "spawner/host_resources.h"
#include "spawner/jobs/job.h"
#include "spawner/jobs/jobs.h"
#include "spawner/machines/machine.h"
#include "spawner/machines/resources.h"
#include "spawner/protocol.h"
#include "spawner/server/daemon_connection.h"
#include "spawner/server/disk_figures.h"
#include "spawner/server/disk_limits.h"
#include "spawner/server/disk_requests.h"

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
  using Owed = DaemonConnection::Owed;
  struct Slot {
    std::unique_ptr<Machine> machine;
    uint64_t serial = 0;
    FdWatch process, status;  // of the machine, which goes after them
    std::optional<Owed> configure;
    std::optional<ConfigureReq> waits;  // for a copy of its snapshot
    std::vector<Owed> destroy;
    int64_t start_limit = 0;  // when a machine that still has not exec'd is given up
  };

  void OnSignal();
  void Dispatch(TaggedRequest request);
  ListResp List() const;
  void SendExited(const Machine& machine);

  void Handle(uint32_t tag, const HelloReq& r);
  void Handle(uint32_t tag, const BootReq& r);
  void Handle(uint32_t tag, const ConfigureReq& r);
  void Handle(uint32_t tag, const ListReq& r);
  void Handle(uint32_t tag, const AttachReq& r);
  void Handle(uint32_t tag, const SetLimitsReq& r);
  void Handle(uint32_t tag, const SetDeadlineReq& r);
  void Handle(uint32_t tag, const UsageReq& r);
  void Handle(uint32_t tag, const PauseReq& r);
  void Handle(uint32_t tag, const DestroyReq& r);
  void Handle(uint32_t tag, const DialReq& r);
  void Handle(uint32_t tag, const ShutdownReq& r);
  void Handle(uint32_t tag, const MemorySnapshotReq& r);
  void Handle(uint32_t tag, const AssignReq& r);
  void OnJobEnd();
  void StartCopies();
  Result<> StartCopy(Slot& slot);
  void OnCopied(uint64_t slot, Job& job, const Result<>& copied);
  void StartMachine(Slot& slot, const ConfigureReq& request);
  void Refuse(Slot& slot, const Error& error);
  void TidyAtTheEnd();
  bool DriveInUse(const std::string& name) const;
  BootResp AgentOf(const Machine& machine) const;

  Slot* Find(const std::string& machine);
  void OnMachine(uint64_t serial);
  Result<> WatchStatus(Slot& slot);
  void OnStatus(Slot& slot, bool ended);
  // Whether its process has ended.
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
  EventLoop loop_;
  ResourcePool pool_;
  DaemonConnection daemon_;
  Jobs jobs_;
  DiskLimits disk_limits_;
  DiskRequests disk_requests_;
  Fd timer_, signals_;
  FdWatch timer_watch_, signals_watch_;
  std::map<uint64_t, Slot> slots_;
  DiskFiguresTeller disk_figures_;  // watches descriptors of the machines
  std::deque<uint64_t> copies_;     // machines whose copy waits for its turn, by serial
  std::map<std::string, uint64_t> by_id_;
  uint64_t next_serial_ = 1;
  bool busy_ = false;       // a machine is starting or ending
  bool background_ = true;  // there may be spare resources to make
  bool stopping_ = false;
  std::optional<Owed> shutdown_;
  std::vector<Owed> lists_;  // answered when what is ending has ended, at list_limit_ at the latest
  int64_t list_limit_ = 0;
  int64_t housekeep_at_ = 0;
  int64_t adjust_at_ = 0;      // when to look at the store's free space again; 0: no machine could use it up
  int64_t connect_limit_ = 0;  // ephemeral: give up when no daemon ever came
};

}  // namespace sandbar::spawner
