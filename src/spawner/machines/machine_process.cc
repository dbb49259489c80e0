#include "spawner/machines/machine_process.h"

#include <signal.h>

#include "os/process.h"

namespace sandbar::spawner {

void MachineProcess::ReadStartTime() {
  if (auto started = os::ProcessStartTime(child_.pid)) start_time_ = *started;
}

std::optional<int> MachineProcess::Reap() {
  if (!child_.pidfd) return std::nullopt;
  auto status = os::TryReap(child_.pidfd.get());
  if (status && !status->has_value()) return std::nullopt;
  exit_status_ = status ? **status : 255;
  return exit_status_;
}

Result<> MachineProcess::Kill() const {
  if (!child_.pidfd) return {};
  return os::SendSignal(child_.pidfd.get(), SIGKILL);
}

void MachineProcess::SetKilledUnstarted() {
  exit_status_ = 128 + SIGKILL;
}

}  // namespace sandbar::spawner
