// Inside of guest_link: the state of one connection, shared by the link, its loops, pending calls and open file streams
// (a call or stream may outlive the link it was made on; it then fails with kUnavailable). Single loop.
#pragma once

#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "engine/guest_link/guest_link.h"
#include "engine/guest_link/waiter.h"
#include "protocol/guest_frames.h"

namespace sandbar::engine {

inline constexpr ptrdiff_t kMaxOpenStreams = 32;  // more wait for their turn
inline constexpr size_t kQueueRoom = 1 << 20;     // calls wait while more than this is unsent
inline constexpr size_t kQueueLimit = 16 << 20;   // an agent that reads nothing loses its link here

// The standard input of a command, as this side knows it.
struct CommandStdin {
  uint64_t sent = 0;  // or had by the agent at HelloAck
  uint64_t taken = 0;
  bool ended = false;
  bool closed = false;
  bool writing = false;                                              // somebody waits in WriteStdin
  std::shared_ptr<WaitList> changed = std::make_shared<WaitList>();  // shared with who waits: a command may go
};

class LinkCore {
 public:
  LinkCore(asio::local::stream_protocol::socket socket, GuestEvents* events, LinkDeadlines limits);
  const LinkDeadlines& limits() const { return limits_; }

  // Only before the loops run.
  Task<> Handshake(std::string key);
  Task<> ReadLoop();
  Task<> WriteLoop();
  // Shuts a link in which a frame has begun and nothing more comes.
  Task<> WatchFrames();
  void SetPaused(bool paused) {
    paused_ += paused ? 1 : -1;
    heard_ = LinkClock::now();
  }

  bool closed() const { return closed_.has_value(); }
  Error Unavailable() const;
  Result<> Require(const protocol::Feature& feature) const;
  // Ends the connection, once; every pending call and stream fails. OnClosed follows from ReadLoop.
  void Shut(Error why);
  void ShutByOwner();
  void Send(const protocol::HostFrame& frame);
  Task<> WaitRoom(LinkClock::time_point deadline);

  // Commands.
  struct ExecCall {
    Waiter waiter;
    std::optional<Result<>> result;
  };
  struct Command {
    ExecCall* starting = nullptr;  // set until the agent answered Exec
    bool running = false;
    bool abandoned = false;  // the caller gave up before the answer: nobody will acknowledge but we
    bool exited = false;
    bool seen = false;      // some output came on this connection; before that `received` is unknown
    uint64_t produced = 0;  // as of HelloAck
    uint64_t received = 0;
    uint64_t acked = 0;
    std::optional<CommandStdin> input;  // it takes standard input
  };
  std::map<std::string, Command> commands;
  std::vector<protocol::CommandState> known;
  std::vector<protocol::StdinState> known_stdins;
  void Ack(const std::string& id, uint64_t offset);
  void AckExit(const std::string& id);
  void Kill(const std::string& id, int signal);
  // nullptr: there is no such command, or it takes no input.
  CommandStdin* FindStdin(const std::string& id);
  std::optional<protocol::StdinState> Stdin(const std::string& id) const;

  // File streams.
  struct Stream {
    uint32_t id = 0;
    bool upload = false;
    bool dial = false;       // data both ways; over when both sides have ended it
    bool connected = false;  // dial: the server accepted
    bool aborted = false;
    bool input_ended = false;                   // upload, dial: our End went out
    uint64_t credit = protocol::kStreamWindow;  // what we may send
    uint64_t window = protocol::kStreamWindow;  // what the agent may send
    uint64_t consumed = 0;                      // read by the caller, not yet credited
    std::deque<std::string> chunks;
    std::optional<std::expected<void, protocol::FileError>> end;
    std::unique_ptr<Waiter> waiter;
    std::unique_ptr<Waiter> credit_waiter;  // dial: of the direction to the server
    void Notify() const {
      waiter->Notify();
      if (credit_waiter) credit_waiter->Notify();
    }
  };
  // Takes a slot (waiting for one) and a fresh id.
  Task<std::shared_ptr<Stream>> OpenStream(bool upload);
  Result<std::shared_ptr<Stream>> OpenDial();
  // Asks the agent to make a directory that exists, which is no work, without waiting for a slot. Any answer ends the
  // stream.
  std::shared_ptr<Stream> Probe();
  // Whether anything has come from the agent since then, or is there to be read.
  bool HeardSince(LinkClock::time_point when) const;
  void EndInput(Stream& stream);
  void Abort(const std::shared_ptr<Stream>& stream);
  TaskGroup* tasks = nullptr;  // of the link: there as long as this is not closed
  const asio::any_io_executor& executor() const { return executor_; }

  // Quiesce: at most one at a time.
  struct QuiesceCall {
    Waiter waiter;
    std::optional<protocol::Quiesced> result;
  };
  QuiesceCall* quiesce = nullptr;
  Waiter* rekeying = nullptr;

 private:
  Result<> TakeStdins(std::vector<protocol::StdinState> stdins);
  Result<> Dispatch(protocol::GuestFrame& frame);
  Result<> On(protocol::HelloAck& m);
  Result<> On(protocol::ExecStarted& m);
  Result<> On(protocol::ExecFailed& m);
  Result<> On(protocol::Output& m);
  Result<> On(protocol::Gap& m);
  Result<> On(protocol::Exit& m);
  Result<> On(protocol::Credit& m);
  Result<> On(protocol::Data& m);
  Result<> On(protocol::End& m);
  Result<> On(protocol::FileError& m);
  Result<> On(protocol::Quiesced& m);
  Result<> On(protocol::Dialed& m);
  Result<> On(protocol::Rekeyed& m);
  Result<> On(protocol::StdinTaken& m);
  Result<> On(protocol::StdinClosed& m);
  Result<Command*> Live(const std::string& id);
  Result<> CheckOffset(Command& c, uint64_t offset, uint64_t bytes, bool gap);
  Result<> EndStream(uint32_t id, std::expected<void, protocol::FileError> how);

  asio::local::stream_protocol::socket socket_;
  asio::any_io_executor executor_;
  GuestEvents* events_;
  LinkDeadlines limits_;
  protocol::FrameDecoder<protocol::GuestFrame> decoder_;
  std::array<char, 64 << 10> buffer_{};
  std::string out_;      // waiting
  std::string writing_;  // in the kernel's hands
  Waiter writable_;
  Waiter unfinished_;            // a frame has begun, or the link is shut
  bool watching_ = false;        // somebody looks after the frame that has begun
  int paused_ = 0;               // how many want the machine to stand still
  LinkClock::time_point heard_;  // when the last byte came
  WaitList room_, slots_;
  std::map<uint32_t, std::shared_ptr<Stream>> streams_;  // shared with the call or FileStream that uses it
  uint32_t next_stream_ = 1;
  std::optional<Error> closed_;
  bool by_owner_ = false;
  uint32_t version_ = 0;  // that both sides speak
};

// kBadRequest with the name of the field.
Result<> CheckPath(const std::string& path, std::string_view what);

// The calls, each a coroutine that holds the core.
Task<> CallExec(std::shared_ptr<LinkCore> core, protocol::Exec request);
Task<> CallInput(std::shared_ptr<LinkCore> core, std::string command, std::string bytes);
Task<> CallWriteStdin(std::shared_ptr<LinkCore> core, std::string command, uint64_t offset, std::string bytes);
Task<> CallEndStdin(std::shared_ptr<LinkCore> core, std::string command, uint64_t offset);
Task<> CallResize(std::shared_ptr<LinkCore> core, std::string command, protocol::TerminalSize size);
struct QuiesceRequest {
  std::chrono::milliseconds grace;
  std::chrono::milliseconds silence;  // 0: as the link's limits say
  bool go_on = false;
};
Task<protocol::Quiesced> CallQuiesce(std::shared_ptr<LinkCore> core, QuiesceRequest request);
Task<> CallRekey(std::shared_ptr<LinkCore> core, protocol::Rekey request);
Task<std::unique_ptr<FileStream>> CallReadFile(std::shared_ptr<LinkCore> core, protocol::ReadFile request);
Task<std::unique_ptr<FileStream>> CallPackTree(std::shared_ptr<LinkCore> core, protocol::PackTree request);
Task<> CallUnpackTree(std::shared_ptr<LinkCore> core, protocol::UnpackTree request, ByteSource* source);
Task<> CallWriteTar(std::shared_ptr<LinkCore> core, protocol::WriteTar request, ByteSource* source);
Task<> CallMakeDir(std::shared_ptr<LinkCore> core, protocol::MakeDir request);
Task<std::vector<protocol::FileEntry>> CallListDir(std::shared_ptr<LinkCore> core, protocol::ListDir request);
Task<protocol::FileEntry> CallStatFile(std::shared_ptr<LinkCore> core, protocol::StatFile request);
Task<> CallWriteFile(std::shared_ptr<LinkCore> core, protocol::WriteFile request, ByteSource* source);
Task<> CallEditFile(std::shared_ptr<LinkCore> core, FileEdit change);
Task<Fd> CallDial(std::shared_ptr<LinkCore> core, uint16_t port);

}  // namespace sandbar::engine
