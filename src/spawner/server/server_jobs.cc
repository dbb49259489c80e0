// The jobs that work for a machine: the copy of the snapshot that it begins with, and the snapshot with its memory.
#include <utility>

#include "base/log.h"
#include "spawner/jobs/copy_job.h"
#include "spawner/server/answer_by_job.h"
#include "spawner/server/server.h"

namespace sandbar::spawner {

void Server::OnJobEnd() {
  background_ = true;
  StartCopies();
}

// Starts the copies that wait, the oldest first. Those whose owner has too many under way stay in the queue.
void Server::StartCopies() {
  for (auto it = copies_.begin(); it != copies_.end();) {
    auto found = slots_.find(*it);
    if (found == slots_.end() || !found->second.waits) {
      it = copies_.erase(it);
      continue;
    }
    auto begun = StartCopy(found->second);
    if (!begun && begun.error().code == Code::kTooMany) {
      ++it;
      continue;
    }
    it = copies_.erase(it);
    if (begun) continue;
    found->second.waits.reset();
    Refuse(found->second, begun.error());
  }
}

Result<> Server::StartCopy(Slot& slot) {
  const std::string& snapshot = slot.waits->snapshots.front();
  JobFacts facts{.kind = JobKind::kCopy, .job_owner = slot.waits->owner, .subjects = {snapshot}};
  auto make = [&](JobFacts f, JobGroup group) {
    return CopyJob::Start(std::move(f), group, host_->disk.get(), slot.machine->disk().slot(), snapshot);
  };
  auto then = [this, serial = slot.serial](Job& ended, const Result<>& copied) { OnCopied(serial, ended, copied); };
  return jobs_.Start(std::move(facts), make, then);
}

void Server::OnCopied(uint64_t serial, Job& job, const Result<>& copied) {
  auto it = slots_.find(serial);
  // Destroyed meanwhile: the copy goes with the job.
  if (it == slots_.end() || !it->second.waits) return;
  Slot& slot = it->second;
  const ConfigureReq request = *std::exchange(slot.waits, std::nullopt);
  if (!copied) return Refuse(slot, copied.error());
  auto adopted = slot.machine->disk().Adopt(static_cast<CopyJob&>(job).Take(), request.inherited_bytes);
  if (!adopted) return Refuse(slot, adopted.error());
  log::Info("machine {} on {}", slot.machine->id(), slot.machine->disk().slot().path);
  StartMachine(slot, request);
}

void Server::Handle(uint32_t tag, const MemorySnapshotReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr) return daemon_.ReplyError(tag, Fail(Code::kNotFound, "there is no such machine").error());
  if (jobs_.MachineHas(r.machine))
    return daemon_.ReplyError(tag, Fail(Code::kConflict, "a snapshot of this machine is being made").error());
  JobFacts facts{.kind = JobKind::kMemorySnapshot, .job_owner = slot->machine->job_owner()};
  AnswerByJob(&daemon_, &jobs_, tag, std::move(facts),
              [&](JobFacts f, JobGroup group) { return slot->machine->TakeMemorySnapshot(std::move(f), group, r); });
}

}  // namespace sandbar::spawner
