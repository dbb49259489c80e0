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
#include "spawner/freeze_job.h"
#include "spawner/host.h"
#include "spawner/job.h"
#include "spawner/machine.h"
#include "spawner/parts.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

class Server {
 public:
  explicit Server(Host* host);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // The socket accepts connections when this returns.
  Result<> Start();
  // Until Shutdown, SIGTERM or, when ephemeral, the end of the daemon's connection.
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
    std::vector<Owed> destroy;
    int64_t start_limit = 0;  // when a machine that still has not exec'd is given up
  };

  struct Running {
    std::unique_ptr<Job> work;
    std::optional<Owed> owed;
    int64_t until = 0;  // 0: as long as it takes
  };

  struct Freeze {
    std::unique_ptr<FreezeJob> work;
    Owed owed;
  };

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
  void StartWalk(uint32_t tag, const std::vector<std::string>& words, std::vector<Fd> fds);
  Result<> AddJob(std::unique_ptr<Job> job, std::optional<Owed> owed);
  void OnJob(uint64_t serial);
  void OnFreeze(uint64_t serial);
  bool DriveInUse(const std::string& name) const;
  BootResp AgentOf(const Machine& machine) const;

  Slot* Find(const std::string& machine);
  void OnMachine(Slot& slot);
  void OnStatus(Slot& slot, bool ended);
  bool Reap(Slot& slot);
  Result<> BeginDestroy(Slot& slot, const std::string& keep_as);
  void DestroyAll();
  // Deadlines and retries; returns how long the loop may sleep, in milliseconds (-1: for ever).
  int Tick();
  void Background();
  void SetTimer(int64_t at);

  Host* host_;
  PartPool pool_;
  Fd epoll_, listener_, timer_, signals_;
  Fd peer_;
  uint64_t connection_ = 0;  // counts connections: replies owed to an older one are dropped
  std::deque<Outgoing> out_;
  std::map<uint64_t, Slot> slots_;
  std::map<uint64_t, Running> jobs_;
  std::map<uint64_t, Freeze> freezes_;
  std::map<std::string, uint64_t> by_id_;
  uint64_t next_serial_ = 1;
  bool busy_ = false;       // a machine is starting or ending
  bool background_ = true;  // there may be spare parts to make
  bool stopping_ = false;
  std::optional<Owed> shutdown_;
  std::vector<Owed> lists_;  // answered when what is ending has ended, at list_limit_ at the latest
  int64_t list_limit_ = 0;
  int64_t housekeep_at_ = 0;
  int64_t connect_limit_ = 0;  // ephemeral: give up when no daemon ever came
};

}  // namespace sandbar::spawner
