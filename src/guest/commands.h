// All commands of the machine: launching, pipes, spools, exits. Loop thread; owned by Agent.
//
// A command lives from Exec until the daemon's ExitAck, across connections. It ends when its main process exits. The
// agent then reads what is left in the pipes, and what follows until a short silence. From then on it discards output
// of background children that still hold the pipes, so that they neither block nor die of SIGPIPE. A terminal is
// closed instead: the kernel hangs it up, and the child gets errors.
#pragma once

#include <sys/types.h>

#include <array>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "guest/command_input.h"
#include "guest/connection.h"
#include "guest/launch.h"
#include "guest/loop.h"
#include "guest/spool.h"
#include "protocol/guest_frames.h"

namespace sandbar::guest {

// Over all commands; a single one has at most protocol::kSpoolHead + protocol::kSpoolTail of it.
inline constexpr size_t kSpoolBudget = 64 << 20;
inline constexpr size_t kMaxRead = 64 << 10;  // at once

class Commands {
 public:
  Commands(Loop* loop, const ChildSetup* setup, Outlet* outlet) : loop_(loop), setup_(setup), outlet_(outlet) {}

  void Exec(protocol::Exec request);
  void Ack(const protocol::Ack& ack);
  void ExitAck(const protocol::ExitAck& ack);
  void Kill(const protocol::Kill& kill);
  void Input(const protocol::Input& input);
  void Stdin(const protocol::Stdin& input);
  void StdinEnd(const protocol::StdinEnd& end);
  void Resize(const protocol::Resize& resize);
  void RefuseNew() { refuse_new_ = true; }
  // They go on under other ids.
  void Rename(const std::vector<protocol::Renamed>& ids);

  // A child was reaped; false when it was none of ours.
  bool OnReaped(pid_t pid, int status);
  void OnConnected();
  void OnDisconnected();
  // Sends output and exits as far as windows and the connection allow.
  void Pump();

  std::vector<protocol::CommandState> States() const;
  std::vector<protocol::StdinState> StdinStates() const;
  // To every group whose main process is not reaped yet.
  void SignalAll(int signal);
  // SIGHUP to the commands that have a terminal, as when a user closes a window: shells ignore SIGTERM there.
  void HangUp();
  bool AnyRunning() const { return !by_pid_.empty(); }
  // Every command has ended and its Exit went out on this connection.
  bool AllReported() const;

 private:
  struct Side {
    Fd fd;
    Watch watch;
    size_t must_read = 0;  // bytes that were in the pipe when the main process ended
    // Out of epoll first: a worker forked just now may still hold the pipe, and closing alone would not unregister it.
    void Close() {
      watch.Reset();
      fd.Reset();
      must_read = 0;
    }
  };
  struct Command {
    protocol::Exec request;  // only id and argv[0] are kept once it runs
    uint64_t generation = 0;
    pid_t pid = 0;
    Fd status;
    Watch status_watch;
    std::array<Side, 3> sides;  // stdout, stderr, the channel if it has one
    std::string input;          // for the channel, not yet written
    Fd terminal;                // the slave, while the main process runs
    std::unique_ptr<CommandInput> standard_input;
    uint64_t taken_said = 0;  // of standard input, what the daemon was told
    bool closed_said = false;
    Spool spool;
    Timer timeout, quiet;
    Clock::time_point started, drain_until;
    bool running = false;   // the exec worked
    bool reaped = false;    // the main process has ended
    bool finished = false;  // and its output is complete
    bool exit_sent = false;
    bool timed_out = false;
    bool out_of_memory = false;
    int code = 0;
    uint64_t duration_ms = 0;
  };
  struct Sink {
    Fd fd;
    Watch watch;
  };

  void Start(Command& c, Launched launched);
  void OnStatus(Command& c, bool child_gone);
  void FailLaunch(Command& c, const LaunchFailure& failure);
  void OnTimeout(Command& c);
  bool KilledForMemory();
  size_t Allowance(const Command& c) const;
  void UpdateReading(Command& c);
  void UpdateAll();
  // Reads once; false when the pipe has nothing now or may not be read.
  bool ReadSide(Command& c, size_t side, size_t max = kMaxRead);
  // As much of the channel as was there before the pipes were emptied: what it says never overtakes what was printed.
  void ReadChannel(Command& c);
  void WriteInput(Command& c);
  void MakeStdin(Command& c, Fd fd, Fd signals);
  void TellStdin(Command& c);
  CommandInput* StdinOf(const std::string& id);
  void Store(Command& c, uint8_t stream, std::string_view bytes);
  void BeginDrain(Command& c);
  void CheckDrained(Command& c);
  void Finish(Command& c);
  void DrainToNowhere(Fd fd);
  bool PumpOne(Command& c);
  void Erase(const std::string& id);
  void Account(size_t before, const Command& c);
  void TrimForBudget();

  Loop* loop_;
  const ChildSetup* setup_;
  Outlet* outlet_;
  bool refuse_new_ = false;
  std::map<std::string, std::unique_ptr<Command>> commands_;
  std::unordered_map<pid_t, Command*> by_pid_;
  std::list<Sink> sinks_;
  uint64_t oom_kills_ = 0;  // of our own kernel, as far as we have asked
  std::string cursor_;      // where the next round of Pump begins, so that none starves
  size_t held_ = 0;         // sum of the spools' cost
  size_t peak_ = 0;
};

}  // namespace sandbar::guest
