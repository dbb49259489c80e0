// The resources of a machine before it has an image: a range of user ids with its user namespace, a network, a control
// group, a slot on the disk, and for some engines a process that waits for the image. The pool makes a few of each
// ahead while the loop is idle. No resource is used by a second machine. Single thread; the pool does not outlive the
// host's resources.
//
//   SB_TRY(MachineResources resources, pool.Take({.net = NetworkKind::kLocal}));      // from the pool, or made now
//   … the machine ends …
//   pool.Discard(std::move(resources));
//   pool.Sweep();
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/engine_table.h"
#include "base/fd.h"
#include "base/result.h"
#include "os/cgroup.h"
#include "os/child.h"
#include "os/netns.h"
#include "os/uid_lease.h"
#include "spawner/disk/disk.h"
#include "spawner/machines/figures_page.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

struct HostResources;

struct Identity {
  os::UidLease lease;
  Fd userns;
};

// Destroyed bottom up: the lease goes last.
struct MachineResources {
  Identity identity;
  os::MachineNet net;
  std::unique_ptr<os::MachineCgroup> group;
  DiskSlot disk;
  os::PrestartedInit init;  // of engines that prestart it, until the machine starts; in the group and the network
  FiguresPage figures;      // of a machine whose agent answers statfs
};

class ResourcePool {
 public:
  ResourcePool(HostResources* host, size_t depth) : host_(host), depth_(depth) {}
  struct Want {
    NetworkKind net = NetworkKind::kLocal;  // only local ones are made ahead
    os::Mac mac = os::kLinkGuestMac;        // of a tap's other end
    bool nesting = false;                   // the machine's root may make namespaces
    bool prestarted_init = false;           // with the process that becomes its first one; network kLocal only
  };
  Result<MachineResources> Take(const Want& want);
  // A control group alone, for a process of ours; goes back by DiscardGroup.
  Result<std::unique_ptr<os::MachineCgroup>> TakeGroup(const os::CgroupLimits& limits);
  // Makes one missing resource; true when there was one to make and more may be missing.
  bool Refill();
  // Releases resources: Sweep does it, and returns false while something is left. A control group stays as long as a
  // process in it has not ended.
  void Discard(MachineResources resources) { leaving_.push_back(std::move(resources)); }
  void DiscardGroup(std::unique_ptr<os::MachineCgroup> group);
  bool Sweep();
  // Releases the spare resources too.
  void Clear();

 private:
  // One attempt to release everything. False: the control group is still busy.
  bool Remove(MachineResources& resources) const;
  Result<Identity> MakeIdentity() const;
  Result<std::unique_ptr<os::MachineCgroup>> MakeGroup() const;
  Result<os::MachineNet> TakeNet(const Want& want, const Identity& identity);
  // A network and a control group with the waiting process in them.
  Result<MachineResources> MakeWithInit();
  Result<MachineResources> TakeWithInit();

  HostResources* host_;
  size_t depth_;
  std::deque<Identity> identities_;
  std::deque<os::MachineNet> nets_;
  std::deque<std::unique_ptr<os::MachineCgroup>> groups_;
  std::deque<DiskSlot> disks_;
  std::deque<MachineResources> with_init_;
  std::vector<MachineResources> leaving_;
  bool failing_ = false;  // do not spin on a host that is out of something; the next Take says what
};

}  // namespace sandbar::spawner
