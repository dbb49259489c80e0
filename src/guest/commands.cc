#include "guest/commands.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "os/openat.h"

namespace sandbar::guest {
namespace {

constexpr auto kQuiet = std::chrono::milliseconds(50);
// A background child that never falls silent may not hold the command open.
constexpr auto kMaxDrain = std::chrono::milliseconds(500);

// More than a terminal can hold: 12 KiB on Linux, 128 KiB and a line on gVisor.
constexpr size_t kMaxBacklog = 256 << 10;

size_t Waiting(int fd) {
  int waiting = 0;
  return ::ioctl(fd, FIONREAD, &waiting) == 0 && waiting > 0 ? static_cast<size_t>(waiting) : 0;
}

// FIONREAD counts only a part of what waits in a terminal: read until there is nothing, but no more than can be there.
size_t TerminalBacklog(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0 ? kMaxBacklog : 0;
}

uint64_t Millis(Clock::duration d) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
}

}  // namespace

void Commands::Exec(protocol::Exec request) {
  auto refuse = [&](protocol::ExecFailure kind, std::string message) {
    outlet_->Send(protocol::ExecFailed{request.id, kind, std::move(message)});
  };
  if (refuse_new_) return refuse(protocol::ExecFailure::kQuiescing, "the machine is stopping");
  if (commands_.contains(request.id)) return refuse(protocol::ExecFailure::kDuplicate, "command id is in use");
  if (commands_.size() >= protocol::kMaxCommands)
    return refuse(protocol::ExecFailure::kNoResources, "too many commands");
  auto launched = Launch(*setup_, request);
  if (!launched) {
    bool bad = launched.error().code == Code::kBadRequest;
    return refuse(bad ? protocol::ExecFailure::kOther : protocol::ExecFailure::kNoResources, launched.error().message);
  }
  auto& slot = commands_[request.id];
  slot = std::make_unique<Command>();
  slot->request = std::move(request);
  Start(*slot, *std::move(launched));
}

void Commands::Start(Command& c, Launched launched) {
  // The environment may be large and is of no further use.
  std::vector<std::string>().swap(c.request.env);
  c.request.argv.resize(1);
  c.generation = outlet_->generation();
  c.pid = launched.pid;
  c.started = Clock::now();
  c.status = std::move(launched.status);
  c.sides[0].fd = std::move(launched.out);
  c.sides[1].fd = std::move(launched.err);
  c.sides[2].fd = std::move(launched.channel);
  c.terminal = std::move(launched.terminal);
  if (launched.input) MakeStdin(c, std::move(launched.input), std::move(launched.signals));
  by_pid_[c.pid] = &c;
  c.status_watch = loop_->Add(c.status.get(), EPOLLIN, [this, &c](uint32_t) { OnStatus(c, false); });
  for (size_t side : {0, 1, 2}) {
    if (!c.sides.at(side).fd) continue;
    c.sides.at(side).watch = loop_->Add(c.sides.at(side).fd.get(), 0, [this, &c, side](uint32_t events) {
      if ((events & EPOLLOUT) != 0) WriteInput(c);
      if (side < 2) ReadSide(c, side);
      if (side == 2 && (events & ~EPOLLOUT) != 0) ReadChannel(c);
      CheckDrained(c);
      Pump();
    });
  }
  if (c.request.timeout_ms > 0) {
    auto limit = std::chrono::milliseconds(std::min<uint64_t>(c.request.timeout_ms, 1ULL << 40));
    c.timeout = loop_->After(limit, [this, &c] { OnTimeout(c); });
  }
}

void Commands::OnStatus(Command& c, bool child_gone) {
  LaunchFailure failure;
  ssize_t n = ::read(c.status.get(), &failure, sizeof failure);
  if (n < 0 && !child_gone && (errno == EAGAIN || errno == EINTR)) return;
  c.status_watch.Reset();
  c.status.Reset();
  if (n == static_cast<ssize_t>(sizeof failure)) return FailLaunch(c, failure);
  c.running = true;
  if (outlet_->live() && outlet_->generation() == c.generation)
    outlet_->Send(protocol::ExecStarted{c.request.id, static_cast<int32_t>(c.pid)});
  TellStdin(c);
  UpdateReading(c);
}

void Commands::FailLaunch(Command& c, const LaunchFailure& failure) {
  by_pid_.erase(c.pid);
  auto failed = Describe(c.request, failure);
  if (outlet_->live() && outlet_->generation() == c.generation) {
    std::string id = c.request.id;
    outlet_->Send(failed);
    return Erase(id);
  }
  // Who asked is gone, and a later connection was told that the command exists: it ends as a shell would end it.
  c.code = failed.kind == protocol::ExecFailure::kNotFound ? 127 : 126;
  c.running = c.reaped = true;
  c.duration_ms = Millis(Clock::now() - c.started);
  for (auto& side : c.sides) side.Close();
  if (c.standard_input) c.standard_input->Close();
  Finish(c);
  Pump();
}

void Commands::OnTimeout(Command& c) {
  if (c.reaped) return;
  c.timed_out = true;
  ::kill(c.running ? -c.pid : c.pid, SIGKILL);
}

void Commands::Kill(const protocol::Kill& kill) {
  auto it = commands_.find(kill.id);
  // Not after the main process was reaped: its number may belong to somebody else by now.
  if (it == commands_.end() || it->second->reaped) return;
  const Command& c = *it->second;
  ::kill(c.running ? -c.pid : c.pid, kill.signal);
}

void Commands::SignalAll(int signal) {
  for (auto& [pid, c] : by_pid_) ::kill(c->running ? -pid : pid, signal);
}

void Commands::HangUp() {
  for (auto& [pid, c] : by_pid_) {
    if (c->request.terminal) ::kill(c->running ? -pid : pid, SIGHUP);
  }
}

// Whether our own kernel has killed for want of memory since the last question.
bool Commands::KilledForMemory() {
  if (!setup_->own_kernel) return false;
  auto counts = os::ReadFile("/proc/vmstat", 64 << 10);
  const size_t at = counts ? counts->find("\noom_kill ") : std::string::npos;
  if (at == std::string::npos) return false;
  const uint64_t now = std::strtoull(counts->c_str() + at + 10, nullptr, 10);
  return now > std::exchange(oom_kills_, now);
}

bool Commands::OnReaped(pid_t pid, int status) {
  auto it = by_pid_.find(pid);
  if (it == by_pid_.end()) return false;
  Command& c = *it->second;
  // A child that died before its exec left its reason (or nothing) in the status pipe.
  if (!c.running) {
    OnStatus(c, true);
    if (!by_pid_.contains(pid)) return true;
  }
  by_pid_.erase(pid);
  c.reaped = true;
  c.timeout.Reset();
  c.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  c.timed_out = c.timed_out && c.code == 128 + SIGKILL;
  c.out_of_memory = c.code == 128 + SIGKILL && KilledForMemory();
  c.duration_ms = Millis(Clock::now() - c.started);
  if (c.standard_input) c.standard_input->Close();
  c.terminal.Reset();
  BeginDrain(c);
  return true;
}

void Commands::ReadChannel(Command& c) {
  int said = 0;
  if (!c.sides[2].fd || ::ioctl(c.sides[2].fd.get(), FIONREAD, &said) != 0) return;
  for (size_t index : {0, 1}) {
    Side& side = c.sides.at(index);
    int waiting = 0;
    if (!side.fd || ::ioctl(side.fd.get(), FIONREAD, &waiting) != 0) continue;
    const uint64_t until = c.spool.end() + static_cast<uint64_t>(waiting);
    while (c.spool.end() < until && ReadSide(c, index)) {
    }
    // The window is full: the channel waits for its turn.
    if (c.spool.end() < until && side.fd) return;
  }
  if (said > 0) {
    ReadSide(c, 2, static_cast<size_t>(said));
    return;
  }
  // Nothing was there, so it is at its end, unless it said something just now: then we are called again.
  char next = 0;
  const ssize_t n = ::recv(c.sides[2].fd.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) c.sides[2].Close();
}

size_t Commands::Allowance(const Command& c) const {
  if (!outlet_->live()) return kMaxRead;
  uint64_t limit = c.spool.acked() + protocol::kOutputWindow;
  if (c.spool.end() >= limit) return 0;
  // Everybody may always have a little, or one slow reader would stop all commands.
  if (held_ >= kSpoolBudget && c.spool.cost() >= kMaxRead) return 0;
  return std::min<uint64_t>(kMaxRead, limit - c.spool.end());
}

void Commands::UpdateReading(Command& c) {
  if (!c.running || c.finished) return;
  uint32_t events = Allowance(c) > 0 ? static_cast<uint32_t>(EPOLLIN) : 0;
  for (auto& side : c.sides) {
    const bool writes = &side == &c.sides[2] && !c.input.empty();
    if (side.fd) side.watch.Set(events | (writes ? static_cast<uint32_t>(EPOLLOUT) : 0));
  }
}

void Commands::UpdateAll() {
  for (auto& [id, c] : commands_) UpdateReading(*c);
}

bool Commands::ReadSide(Command& c, size_t index, size_t max) {
  Side& side = c.sides.at(index);
  size_t allowed = std::min(Allowance(c), max);
  if (!side.fd || c.finished) return false;
  if (allowed == 0) {
    UpdateReading(c);
    return false;
  }
  std::array<char, kMaxRead> buffer;
  ssize_t n = ::read(side.fd.get(), buffer.data(), allowed);
  if (n < 0 && errno == EINTR) return false;
  if (n < 0 && errno == EAGAIN) {
    side.must_read = 0;
    return false;
  }
  // A terminal's end is EIO.
  if (n <= 0) {
    side.Close();
    return false;
  }
  auto got = static_cast<size_t>(n);
  side.must_read -= std::min(side.must_read, got);
  Store(c, static_cast<uint8_t>(index + 1), std::string_view(buffer.data(), got));
  return true;
}

void Commands::Store(Command& c, uint8_t stream, std::string_view bytes) {
  size_t before = c.spool.cost();
  c.spool.Append(stream, bytes);
  if (!outlet_->live()) c.spool.Trim(protocol::kSpoolHead + protocol::kSpoolTail);
  Account(before, c);
  if (!outlet_->live() && held_ > kSpoolBudget) TrimForBudget();
  UpdateReading(c);
}

void Commands::BeginDrain(Command& c) {
  for (auto& side : c.sides) {
    if (side.fd) side.must_read = c.request.terminal ? TerminalBacklog(side.fd.get()) : Waiting(side.fd.get());
  }
  for (size_t index : {0, 1, 2}) {
    // As much as is there and may be read; the rest comes through the watches as the daemon acknowledges.
    while (c.sides.at(index).fd && ReadSide(c, index)) {
      if (c.sides.at(index).must_read == 0) break;
    }
    // One more look, for the end of file right behind the last byte.
    if (c.sides.at(index).fd && c.sides.at(index).must_read == 0) ReadSide(c, index);
  }
  c.drain_until = Clock::now() + kMaxDrain;
  CheckDrained(c);
  Pump();
}

void Commands::CheckDrained(Command& c) {
  if (!c.reaped || c.finished) return;
  auto owes = [&c] { return std::ranges::any_of(c.sides, [](const Side& s) { return s.must_read > 0; }); };
  bool owed = owes();
  bool open = std::ranges::any_of(c.sides, [](const Side& s) { return bool(s.fd); });
  if (!open) return Finish(c);
  auto now = Clock::now();
  if (owed) c.drain_until = now + kMaxDrain;
  if (!owed && now >= c.drain_until) return Finish(c);
  c.quiet = loop_->After(kQuiet, [this, &c, owes] {
    if (owes()) return CheckDrained(c);
    Finish(c);
    Pump();
  });
}

void Commands::Finish(Command& c) {
  c.finished = true;
  c.quiet.Reset();
  for (auto& side : c.sides) {
    side.watch.Reset();
    if (side.fd && !c.request.terminal) DrainToNowhere(std::move(side.fd));
    side.Close();
  }
}

void Commands::DrainToNowhere(Fd fd) {
  auto it = sinks_.emplace(sinks_.end());
  it->fd = std::move(fd);
  it->watch = loop_->Add(it->fd.get(), EPOLLIN, [this, it](uint32_t) {
    std::array<char, kMaxRead> buffer;
    ssize_t n = ::read(it->fd.get(), buffer.data(), buffer.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) sinks_.erase(it);
  });
}

}  // namespace sandbar::guest
