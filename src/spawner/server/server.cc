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
#include <array>

#include "base/log.h"
#include "os/process.h"
#include "os/unix_socket.h"
#include "spawner/jobs/tidy_job.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kPoolDepth = 8;
constexpr size_t kMaxOutgoing = 4096;
constexpr int64_t kDaemonGraceMs = 10'000;
constexpr int64_t kConnectLimitMs = 60'000;
constexpr int kRetryMs = 3;
constexpr int kIdleMs = 4;
constexpr int64_t kHousekeepMs = 1000;
constexpr int64_t kAloneMs = 5000;
constexpr int64_t kAdjustMs = 1000;
constexpr int kLastTidyMs = 20'000;

}  // namespace

Server::Server(HostResources* host) : host_(host), pool_(host, kPoolDepth) {}

Result<> Server::Watch(int fd, uint32_t events, uint64_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return FailErrno("epoll");
  return {};
}

Result<> Server::Start() {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  timer_ = Fd(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  sigset_t set;
  sigemptyset(&set);
  for (int s : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) sigaddset(&set, s);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  sigdelset(&set, SIGPIPE);
  signals_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!epoll_ || !timer_ || !signals_) return FailErrno("make the event loop");
  SB_TRY(listener_, os::MakeUnixSocket(SOCK_SEQPACKET));
  SB_TRYV(os::BindAndListen(listener_.get(), host_->run.get(), "spawner.sock", 0600, host_->options.daemon_uid,
                            host_->options.daemon_gid));
  SB_TRYV(Watch(listener_.get(), EPOLLIN, Key(Kind::kListener)));
  SB_TRYV(Watch(timer_.get(), EPOLLIN, Key(Kind::kTimer)));
  SB_TRYV(Watch(signals_.get(), EPOLLIN, Key(Kind::kSignals)));
  if (host_->options.ephemeral) connect_limit_ = os::BootTimeMs() + kConnectLimitMs;
  return {};
}

Result<> Server::Run() {
  std::array<epoll_event, 64> events{};
  for (;;) {
    int timeout = Tick();
    if (stopping_ && slots_.empty() && jobs_.empty() && pool_.Sweep()) break;
    if (background_ && !busy_) timeout = kIdleMs;
    int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout);
    if (n < 0 && errno != EINTR) return FailErrno("epoll_wait");
    // Spare resources are made only in a moment in which nobody waits for a machine to start or end.
    if (n == 0 && background_ && !busy_) Background();
    for (int i = 0; i < n; ++i) OnEvent(events[static_cast<size_t>(i)].data.u64, events[static_cast<size_t>(i)].events);
  }
  pool_.Clear();
  TidyAtTheEnd();
  if (shutdown_) ReplyTo(*shutdown_, OkResp{});
  ::unlinkat(host_->run.get(), "spawner.sock", 0);
  return {};
}

// What was deleted shall not lie around until the next start, but whoever waits for our end shall not wait for long.
void Server::TidyAtTheEnd() {
  auto job = TidyJob::Start(nullptr, host_->disk.get());
  if (!job) return log::Warn("{}", job.error().message);
  pollfd ended{(*job)->pidfd(), POLLIN, 0};
  if (::poll(&ended, 1, kLastTidyMs) <= 0) return (*job)->Kill();
  if (auto done = (*job)->Finish(); !done) log::Warn("{}", done.error().message);
}

void Server::OnEvent(uint64_t key, uint32_t events) {
  const auto kind = static_cast<Kind>(key & 7);
  if (kind == Kind::kListener) return OnAccept();
  if (kind == Kind::kTimer) {
    uint64_t count = 0;
    [[maybe_unused]] ssize_t n = ::read(timer_.get(), &count, sizeof count);
    return;
  }
  if (kind == Kind::kSignals) {
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof info) != sizeof info || info.ssi_signo == SIGHUP) return;
    log::Info("asked to end by signal {}", info.ssi_signo);
    stopping_ = true;
    return DestroyAll();
  }
  if (kind == Kind::kPeer) {
    if ((events & EPOLLOUT) != 0) Flush();
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) OnReadable();
    return;
  }
  if (kind == Kind::kJob) return OnJob(key >> 3);
  auto it = slots_.find(key >> 3);
  if (it == slots_.end()) return;
  if (kind == Kind::kMeasured) return OnMeasured(it->second);
  OnMachine(it->second);
}

void Server::OnAccept() {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return;
  auto peer = os::PeerOf(fd.get());
  if (!peer || (peer->uid != host_->options.daemon_uid && peer->uid != 0)) {
    log::Warn("refused a connection of uid {}", peer ? static_cast<int64_t>(peer->uid) : -1);
    return;
  }
  if (peer_) Disconnect("replaced by a newer connection");
  if (auto r = Watch(fd.get(), EPOLLIN, Key(Kind::kPeer)); !r) {
    log::Error("{}", r.error().message);
    return;
  }
  peer_ = std::move(fd);
  ++connection_;
  connect_limit_ = 0;
  log::Info("daemon connected, pid {}", peer->pid);
}

void Server::OnReadable() {
  // A few at a time: machines' exits must not starve behind a chatty daemon.
  for (int i = 0; i < 16 && peer_; ++i) {
    auto packet = os::ReceivePacket(peer_.get(), kMaxMessage, false);
    if (!packet) return Disconnect(packet.error().message.c_str());
    if (!packet->has_value()) return;
    auto request = DecodeRequest((*packet)->bytes);
    if (!request) return Disconnect("malformed request");
    Dispatch(std::move(*request));
  }
}

void Server::Disconnect(const char* why) {
  log::Info("daemon disconnected: {}", why);
  Unwatch(peer_.get());
  peer_.Reset();
  out_.clear();
}

void Server::Dispatch(TaggedRequest request) {
  uint32_t tag = request.tag;
  if (stopping_ && !std::holds_alternative<ListReq>(request.body))
    return ReplyError(tag, Fail(Code::kUnavailable, "the spawner is ending").error());
  std::visit([this, tag](const auto& r) { Handle(tag, r); }, request.body);
}

void Server::Reply(uint32_t tag, Response body, std::vector<Fd> fds) {
  if (!peer_) return;
  if (out_.size() >= kMaxOutgoing) return Disconnect("the daemon does not read its replies");
  TaggedResponse response;
  response.tag = tag;
  response.body = std::move(body);
  out_.push_back(Outgoing{Encode(response), std::move(fds)});
  Flush();
}

void Server::ReplyTo(const Owed& owed, Response body) {
  if (owed.connection == connection_) Reply(owed.tag, std::move(body));
}

void Server::ReplyError(uint32_t tag, const Error& error) {
  Reply(tag, ToResponse(error));
}

void Server::Flush() {
  while (peer_ && !out_.empty()) {
    std::vector<int> fds;
    for (const Fd& fd : out_.front().fds) fds.push_back(fd.get());
    auto sent = os::SendPacket(peer_.get(), out_.front().bytes, fds);
    if (!sent) return Disconnect(sent.error().message.c_str());
    if (!*sent) break;
    out_.pop_front();
  }
  if (!peer_) return;
  epoll_event event{};
  event.events = EPOLLIN | (out_.empty() ? 0U : static_cast<uint32_t>(EPOLLOUT));
  event.data.u64 = Key(Kind::kPeer);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer_.get(), &event);
}

void Server::SendExited(const Machine& m) {
  Reply(0, ExitedEvent{m.id(), m.exit_status(), m.killed_by_deadline});
}

Server::Slot* Server::Find(const std::string& machine) {
  auto it = by_id_.find(machine);
  return it == by_id_.end() ? nullptr : &slots_.at(it->second);
}

void Server::Unwatch(int fd) {
  // Closing is not enough: a child that has not exec'd yet holds a copy, and epoll would go on reporting it.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

bool Server::Reap(Slot& slot) {
  auto status = slot.machine->OnExit();
  if (!status) return false;
  Unwatch(slot.machine->pidfd());
  slot.machine->CloseProcess();
  return true;
}

// The status pipe or the pidfd has something to say; both may have, in either order.
void Server::OnMachine(Slot& slot) {
  bool starting = slot.machine->status_fd() >= 0;
  bool ended = Reap(slot);
  if (starting) OnStatus(slot, ended);
  if (!ended || slot.machine->state() == Machine::State::kEnding) return;
  log::Info("machine {} ended with {}{}", slot.machine->id(), slot.machine->exit_status(),
            slot.machine->killed_by_deadline ? " at its deadline" : "");
  SendExited(*slot.machine);
}

void Server::OnStatus(Slot& slot, bool ended) {
  Unwatch(slot.machine->status_fd());
  auto running = slot.machine->OnStatus();
  if (running && ended) running = Fail(Code::kUnavailable, "the machine ended while it started");
  if (running && !*running) {
    auto again = Watch(slot.machine->status_fd(), EPOLLIN, Key(Kind::kStatus, slot.serial));
    if (again) return;
    running = std::unexpected(std::move(again).error());
  }
  slot.start_limit = 0;
  std::optional<Owed> owed = std::exchange(slot.configure, std::nullopt);
  if (!running) log::Warn("machine {}: {}", slot.machine->id(), running.error().message);
  if (owed && owed->connection == connection_) {
    if (running) Reply(owed->tag, OkResp{});
    if (!running) ReplyError(owed->tag, running.error());
  }
  slot.machine->AfterStart();
  disk_limits_at_ = 0;
}

Result<> Server::BeginDestroy(Slot& slot, const std::string& keep_as) {
  // What it is to begin with is not in it yet: kept now, it would be a snapshot that has lost everything.
  if (slot.waits && !keep_as.empty())
    return Fail(Code::kUnavailable, "the machine's files are still being copied; try again later");
  SB_TRYV(slot.machine->BeginDestroy(keep_as));
  slot.waits.reset();
  EndMeasuring(slot);
  if (auto owed = std::exchange(slot.configure, std::nullopt))
    ReplyTo(*owed, ErrorResp{static_cast<int32_t>(Code::kStopped), "the machine was destroyed", 0});
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
  int64_t next = connect_limit_;
  bool retry = false;
  busy_ = false;
  bool abandoned = host_->options.ephemeral && !peer_ && (connection_ > 0 || now >= connect_limit_);
  if (abandoned && !stopping_) {
    log::Info("no daemon: ending");
    stopping_ = true;
    DestroyAll();
  }
  // Without its directory no server can find this process again: when nothing is left to supervise it has no use.
  if (!peer_ && !stopping_ && slots_.empty() && jobs_.empty()) {
    if (DataGone()) {
      log::Info("the data directory is gone: ending");
      stopping_ = true;
    } else if (next == 0 || now + kAloneMs < next) {
      next = now + kAloneMs;
    }
  }
  if (const int64_t at = jobs_.Expire(now); at != 0 && (next == 0 || at < next)) next = at;
  TidyIfNeeded(now, &next);
  WatchDiskLimits(now, &next);
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
        // What is left is only ours, and nobody has to wait for it.
        UsageResp usage = m.final_usage();
        pool_.Discard(m.TakeResources());
        std::vector<Owed> destroy = std::move(slot.destroy);
        by_id_.erase(m.id());
        it = slots_.erase(it);
        for (const Owed& owed : destroy) ReplyTo(owed, usage);
        background_ = true;
        continue;
      }
      if (!m.kept()) {
        for (const Owed& owed : std::exchange(slot.destroy, {})) ReplyTo(owed, ToResponse(m.kept().error()));
      }
      // A process that is still dying wakes us by its pidfd; a busy control group has no such event.
      retry = retry || m.pidfd() < 0;
    } else {
      int64_t at =
          m.deadline == 0 || m.state() == Machine::State::kExited ? 0 : m.deadline + (peer_ ? kDaemonGraceMs : 0);
      if (at != 0 && now >= at && !m.killed_by_deadline) {
        m.killed_by_deadline = true;
        if (m.ExpireUnstarted()) {
          SendExited(m);
          // Perhaps nobody knows it, and nothing ever was in it.
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
      for (const Owed& owed : std::exchange(lists_, {})) ReplyTo(owed, List());
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
  // What could not be done now (the kernel is still freeing) is looked at again in a while.
  const bool making = host_->microvm && CollectTemplate(*host_->microvm);
  if (!background_ && (making || host_->disk->backlog())) housekeep_at_ = os::BootTimeMs() + kHousekeepMs;
}

}  // namespace sandbar::spawner
