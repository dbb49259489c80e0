// The scripted agent of a fake machine: real frames, pretended programs. Single loop.
//
// argv[0] picks the program (any directory is ignored):
//   echo WORDS…   err WORDS…   env   pwd   id   true   exit N   sleep MS   stubborn (ignores SIGTERM)
//   spew BYTES [STREAM]   gap BYTES   oom   die (the whole machine ends)
//   cat (reads its standard input)   head BYTES (reads as many, then reads no more and waits for a signal)
// Anything else is "not found". Files are strings in a map; an upload is stored, unread, as <cwd>/.upload.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "async/task.h"
#include "protocol/guest_frames.h"

namespace sandbar::engine {

// Byte number i of what "spew" writes.
inline char FakeSpewByte(uint64_t i) {
  return i % 64 == 63 ? '\n' : static_cast<char>('a' + i % 23);
}

class FakeAgent {
 public:
  explicit FakeAgent(const asio::any_io_executor& ex);
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  std::map<std::string, std::string> files;
  std::set<std::string> dirs;
  std::vector<protocol::Exec> execs;  // every request seen
  std::vector<protocol::Resize> resizes;
  uint32_t newest = protocol::GuestVersions().newest;  // of the protocol's versions that it speaks
  std::function<void()> on_oom;                        // "oom" was run
  std::function<void()> on_die;                        // "die" was run
  bool deaf = false;                                   // it takes what it is told and does nothing
  bool files_hang = false;    // reads of files are never answered, as when root stops whoever does them
  size_t hung = 0;            // how many were not
  size_t kept_bytes() const;  // not acknowledged yet
  size_t unacked_exits() const;
  bool connected() const { return socket_ != nullptr; }

  // The newest connection wins.
  void Serve(asio::local::stream_protocol::socket socket);
  // Breaks the connection, as a daemon's death does.
  void Drop();
  // Sends bytes that are no frames.
  void SendGarbage();
  // Sends SIGTERM to every command, as a process of the machine may.
  void Terminate();
  asio::awaitable<void> Close();

 private:
  using Socket = asio::local::stream_protocol::socket;
  struct Piece {
    uint64_t offset = 0;
    uint8_t stream = 1;
    std::string bytes;
  };
  struct Command {
    explicit Command(const asio::any_io_executor& ex) : changed(ex) {}
    protocol::Exec request;
    std::deque<Piece> kept;
    uint64_t produced = 0, acked = 0;
    int signal = 0;
    bool exited = false;
    protocol::Exit exit;
    std::string input;           // of its standard input, not yet read
    protocol::StdinState state;  // of its standard input
    Event changed;
  };
  struct Upload {
    std::string path;
    std::string bytes;
  };

  Task<> ReadLoop(std::shared_ptr<Socket> socket);
  Task<> WriteLoop(std::shared_ptr<Socket> socket);
  void Send(const protocol::GuestFrame& frame);
  void Handle(const protocol::HostFrame& frame);
  void OnHello(const protocol::Hello& hello);
  void OnExec(const protocol::Exec& exec);
  void OnAck(const protocol::Ack& ack);
  void OnStdin(const protocol::Stdin& input);
  void CloseStdin(Command& command);
  void Signal(Command& command, int signal);
  void OnData(const protocol::Data& data);
  void OnEnd(uint32_t stream);
  void OnMakeDir(const protocol::MakeDir& request);
  Task<> SendFile(uint32_t stream, std::string bytes);
  Task<> Run(std::shared_ptr<Command> command);
  Task<int> Program(std::shared_ptr<Command> command);
  Task<> Emit(std::shared_ptr<Command> command, uint8_t stream, std::string bytes);
  Task<int> SleepFor(std::shared_ptr<Command> command, std::chrono::milliseconds time, bool stubborn);
  Task<int> Cat(std::shared_ptr<Command> command, uint64_t most);
  Task<> DoQuiesce(std::chrono::milliseconds grace);
  bool AllExited() const;

  asio::any_io_executor ex_;
  std::shared_ptr<Socket> socket_;  // shared with its two loops
  bool greeted_ = false;
  bool quiescing_ = false;
  std::string out_;
  std::map<std::string, std::shared_ptr<Command>> commands_;  // shared with their running programs
  std::map<uint32_t, Upload> uploads_;
  std::map<uint32_t, uint64_t> credit_;
  Event writable_;
  Event credited_;
  TaskGroup tasks_;
};

}  // namespace sandbar::engine
