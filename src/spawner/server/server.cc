#include "spawner/server/server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "os/process.h"
#include "spawner/jobs/tidy_job.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kPoolDepth = 8;
constexpr int64_t kDaemonGraceMs = 10'000;
constexpr int64_t kConnectLimitMs = 60'000;
constexpr int kRetryMs = 3;
constexpr int kIdleMs = 4;
constexpr int64_t kHousekeepMs = 1000;
constexpr int64_t kAloneMs = 5000;
constexpr int64_t kAdjustMs = 1000;
constexpr int kLastTidyMs = 20'000;

}  // namespace

Server::Server(HostResources* host)
    : host_(host),
      pool_(host, kPoolDepth),
      daemon_(&loop_, [this](TaggedRequest request) { Dispatch(std::move(request)); }),
      jobs_(&loop_, &pool_, [this] { OnJobEnd(); }),
      disk_limits_(&loop_, &jobs_),
      disk_requests_(host, &daemon_, &jobs_,
                     {.drive_in_use = [this](const std::string& name) { return DriveInUse(name); },
                      .freed = [this] { background_ = true; }}),
      disk_figures_(&loop_) {}

Result<> Server::Start() {
  timer_ = Fd(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  sigset_t set;
  sigemptyset(&set);
  for (int s : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) sigaddset(&set, s);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  sigdelset(&set, SIGPIPE);
  signals_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!timer_ || !signals_) return FailErrno("make the event loop");
  SB_TRYV(daemon_.Listen(host_->run.get(), host_->options.daemon_uid, host_->options.daemon_gid));
  // The timer only has to wake the loop: Tick does the rest.
  auto on_time = [this](uint32_t) {
    uint64_t count = 0;
    [[maybe_unused]] ssize_t n = ::read(timer_.get(), &count, sizeof count);
  };
  SB_TRY(timer_watch_, loop_.TryAdd(timer_.get(), EPOLLIN, on_time));
  SB_TRY(signals_watch_, loop_.TryAdd(signals_.get(), EPOLLIN, [this](uint32_t) { OnSignal(); }));
  if (host_->options.ephemeral) connect_limit_ = os::BootTimeMs() + kConnectLimitMs;
  return {};
}

Result<> Server::Run() {
  for (;;) {
    int timeout = Tick();
    if (stopping_ && slots_.empty() && jobs_.empty() && pool_.Sweep()) break;
    if (background_ && !busy_) timeout = kIdleMs;
    const size_t ready = loop_.RunOnce(timeout);
    // Spare resources are made only in a moment in which nobody waits for a machine to start or end.
    if (ready == 0 && background_ && !busy_) Background();
  }
  pool_.Clear();
  TidyAtTheEnd();
  if (shutdown_) daemon_.ReplyTo(*shutdown_, OkResp{});
  ::unlinkat(host_->run.get(), "spawner.sock", 0);
  return {};
}

// Removes what was deleted, so that it does not take space until the next start. Gives up after a while, because
// somebody waits for the spawner's end.
void Server::TidyAtTheEnd() {
  auto job = TidyJob::Start(nullptr, host_->disk.get());
  if (!job) return log::Warn("{}", job.error().message);
  pollfd ended{(*job)->pidfd(), POLLIN, 0};
  if (::poll(&ended, 1, kLastTidyMs) <= 0) return (*job)->Kill();
  if (auto done = (*job)->Finish(); !done) log::Warn("{}", done.error().message);
}

void Server::OnSignal() {
  signalfd_siginfo info{};
  if (::read(signals_.get(), &info, sizeof info) != sizeof info || info.ssi_signo == SIGHUP) return;
  log::Info("asked to end by signal {}", info.ssi_signo);
  stopping_ = true;
  DestroyAll();
}

void Server::Dispatch(TaggedRequest request) {
  uint32_t tag = request.tag;
  if (stopping_ && !std::holds_alternative<ListReq>(request.body))
    return daemon_.ReplyError(tag, Fail(Code::kUnavailable, "the spawner is ending").error());
  auto handle = [this, tag](const auto& r) {
    if constexpr (requires { disk_requests_.Handle(tag, r); }) {
      disk_requests_.Handle(tag, r);
    } else {
      Handle(tag, r);
    }
  };
  std::visit(handle, request.body);
}

void Server::SendExited(const Machine& m) {
  daemon_.Reply(0, ExitedEvent{m.id(), m.process().exit_status(), m.killed_by_deadline});
}

Server::Slot* Server::Find(const std::string& machine) {
  auto it = by_id_.find(machine);
  return it == by_id_.end() ? nullptr : &slots_.at(it->second);
}

bool Server::Reap(Slot& slot) {
  auto status = slot.machine->OnExit();
  if (!status) return false;
  slot.process.Reset();
  slot.machine->CloseProcess();
  return true;
}

// The status pipe or the pidfd has something to say; both may have, in either order.
void Server::OnMachine(uint64_t serial) {
  auto it = slots_.find(serial);
  if (it == slots_.end()) return;
  Slot& slot = it->second;
  bool starting = slot.machine->process().status_fd() >= 0;
  bool ended = Reap(slot);
  if (starting) OnStatus(slot, ended);
  if (!ended || slot.machine->state() == Machine::State::kEnding) return;
  log::Info("machine {} ended with {}{}", slot.machine->id(), slot.machine->process().exit_status(),
            slot.machine->killed_by_deadline ? " at its deadline" : "");
  SendExited(*slot.machine);
}

void Server::OnStatus(Slot& slot, bool ended) {
  slot.status.Reset();
  auto running = slot.machine->OnStatus();
  if (running && ended) running = Fail(Code::kUnavailable, "the machine ended while it started");
  if (running && !*running) {
    auto again = WatchStatus(slot);
    if (again) return;
    running = std::unexpected(std::move(again).error());
  }
  slot.start_limit = 0;
  std::optional<Owed> owed = std::exchange(slot.configure, std::nullopt);
  if (!running) log::Warn("machine {}: {}", slot.machine->id(), running.error().message);
  if (owed) daemon_.ReplyTo(*owed, running ? Response(OkResp{}) : Response(ToResponse(running.error())));
  slot.machine->AfterStart();
  disk_limits_.Begin(slot.serial, slot.machine.get());
  disk_figures_.Begin(slot.serial, slot.machine.get());
}

Result<> Server::WatchStatus(Slot& slot) {
  auto on_status = [this, serial = slot.serial](uint32_t) { OnMachine(serial); };
  SB_TRY(slot.status, loop_.TryAdd(slot.machine->process().status_fd(), EPOLLIN, on_status));
  return {};
}

Result<> Server::BeginDestroy(Slot& slot, const std::string& keep_as) {
  // The copy that the machine begins with is not there yet: a snapshot taken now would have lost all files.
  if (slot.waits && !keep_as.empty())
    return Fail(Code::kUnavailable, "the machine's files are still being copied; try again later");
  SB_TRYV(slot.machine->BeginDestroy(keep_as));
  slot.waits.reset();
  disk_limits_.End(slot.serial);
  disk_figures_.End(slot.serial);
  if (auto owed = std::exchange(slot.configure, std::nullopt))
    daemon_.ReplyTo(*owed, ErrorResp{static_cast<int32_t>(Code::kStopped), "the machine was destroyed", 0});
  slot.start_limit = 0;
  return {};
}

void Server::DestroyAll() {
  jobs_.KillAll();
  for (auto& [serial, slot] : slots_) {
    // One that is ending already goes on as it was told.
    if (auto r = BeginDestroy(slot, ""); !r) log::Debug("{}", r.error().message);
  }
}

bool Server::DataGone() const {
  struct stat st{};
  return ::fstat(host_->data.get(), &st) == 0 && st.st_nlink == 0;
}

int Server::Tick() {
  int64_t now = os::BootTimeMs();
  int64_t next = daemon_.ever_connected() ? 0 : connect_limit_;
  bool retry = false;
  busy_ = false;
  bool abandoned =
      host_->options.ephemeral && !daemon_.connected() && (daemon_.ever_connected() || now >= connect_limit_);
  if (abandoned && !stopping_) {
    log::Info("no daemon: ending");
    stopping_ = true;
    DestroyAll();
  }
  // Without its directory no server can find this process again: when nothing is left to supervise it has no use.
  if (!daemon_.connected() && !stopping_ && slots_.empty() && jobs_.empty()) {
    if (DataGone()) {
      log::Info("the data directory is gone: ending");
      stopping_ = true;
    } else if (next == 0 || now + kAloneMs < next) {
      next = now + kAloneMs;
    }
  }
  if (const int64_t at = jobs_.Expire(now); at != 0 && (next == 0 || at < next)) next = at;
  if (!stopping_) {
    disk_requests_.TidyIfNeeded(now, &next);
    disk_limits_.Look(now, &next);
  }
  if (housekeep_at_ != 0 && now >= housekeep_at_) {
    housekeep_at_ = 0;
    background_ = true;
  }
  if (housekeep_at_ != 0 && (next == 0 || housekeep_at_ < next)) next = housekeep_at_;
  if (adjust_at_ == 0 && !slots_.empty()) adjust_at_ = now;
  if (adjust_at_ != 0 && now >= adjust_at_) {
    host_->disk->Adjust();
    adjust_at_ = slots_.empty() ? 0 : now + kAdjustMs;
  }
  if (adjust_at_ != 0 && (next == 0 || adjust_at_ < next)) next = adjust_at_;
  for (auto it = slots_.begin(); it != slots_.end();) {
    Slot& slot = it->second;
    Machine& m = *slot.machine;
    if (m.state() == Machine::State::kEnding && !m.kept()) {
      ++it;
      continue;
    }
    if (m.state() == Machine::State::kEnding) {
      if (m.TryFinish()) {
        // The reply does not wait for the resources to be released.
        UsageResp usage = m.final_usage();
        pool_.Discard(m.TakeResources());
        std::vector<Owed> destroy = std::move(slot.destroy);
        by_id_.erase(m.id());
        it = slots_.erase(it);
        for (const Owed& owed : destroy) daemon_.ReplyTo(owed, usage);
        background_ = true;
        continue;
      }
      if (!m.kept()) {
        for (const Owed& owed : std::exchange(slot.destroy, {})) daemon_.ReplyTo(owed, ToResponse(m.kept().error()));
      }
      // A process that is still dying wakes us by its pidfd; a busy control group has no such event.
      retry = retry || m.process().pidfd() < 0;
    } else {
      int64_t at = m.deadline == 0 || m.state() == Machine::State::kExited
                       ? 0
                       : m.deadline + (daemon_.connected() ? kDaemonGraceMs : 0);
      if (at != 0 && now >= at && !m.killed_by_deadline) {
        m.killed_by_deadline = true;
        if (m.ExpireUnstarted()) {
          SendExited(m);
          // Perhaps no daemon knows of it, and nothing ever ran in it.
          if (auto r = BeginDestroy(slot, ""); !r) log::Error("{}", r.error().message);
          retry = true;  // it has no process whose end would wake us
        }
        m.Kill();
      } else if (slot.start_limit != 0 && now >= slot.start_limit) {
        log::Error("machine {} does not start", m.id());
        slot.start_limit = 0;
        m.Kill();
      }
      for (int64_t t : {m.killed_by_deadline ? 0 : at, slot.start_limit}) {
        if (t != 0 && (next == 0 || t < next)) next = t;
      }
    }
    busy_ = busy_ || m.state() == Machine::State::kEnding || m.state() == Machine::State::kStarting;
    ++it;
  }
  retry = !pool_.Sweep() || retry;
  if (!lists_.empty()) {
    const bool ending = std::ranges::any_of(slots_, [](const auto& s) { return s.second.machine->Ending(); });
    if (!ending || now >= list_limit_) {
      for (const Owed& owed : std::exchange(lists_, {})) daemon_.ReplyTo(owed, List());
    } else if (next == 0 || list_limit_ < next) {
      next = list_limit_;
    }
  }
  SetTimer(next);
  return retry ? kRetryMs : -1;
}

void Server::SetTimer(int64_t at) {
  itimerspec spec{};
  // Zero would disarm it: a moment that has passed is one nanosecond after boot.
  if (at != 0) {
    spec.it_value.tv_sec = at / 1000;
    spec.it_value.tv_nsec = at % 1000 * 1'000'000 + 1;
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

void Server::Background() {
  if (stopping_) {
    background_ = false;
    return;
  }
  background_ = pool_.Refill();
  if (background_) return;
  background_ = host_->disk->Housekeep();
  // The kernel may still be freeing what is to be cleaned up: try again in a while.
  const bool making = host_->microvm && CollectTemplate(*host_->microvm);
  if (!background_ && (making || host_->disk->backlog())) housekeep_at_ = os::BootTimeMs() + kHousekeepMs;
}

}  // namespace sandbar::spawner
