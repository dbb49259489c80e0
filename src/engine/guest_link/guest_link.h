// The daemon's end of one machine's agent: frames over a reconnectable stream, multiplexed.
// Single loop. The agent is hostile. Every id and number from it is checked. A violation, bytes that belong to no
// frame, or a frame that does not end close the link (kProtocol).
//
// Output and exits arrive through GuestEvents for commands of this and of earlier connections (after a daemon restart
// the agent replays what was not acknowledged). The receiver stores the bytes, then calls Ack. A withheld Ack slows the
// command down. A replay starts at the last Ack that the agent received, which may be before the end of the stored
// bytes. The receiver then keeps only the new bytes and acknowledges all that it has. Gaps are acknowledged like bytes.
// The link never acknowledges more than was sent. AckExit frees the command.
//
// A pending call fails with kUnavailable when the link closes; it and an open FileStream may outlive the link.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/machine.h"
#include "protocol/file_entry.h"
#include "protocol/guest_frames.h"

namespace sandbar::engine {

class GuestEvents {
 public:
  virtual ~GuestEvents() = default;
  // Called on the loop, in order per command. `offset` is the position of the first byte.
  virtual void OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) = 0;
  virtual void OnGap(const std::string& command, uint64_t offset, uint64_t bytes) = 0;
  virtual void OnExit(const protocol::Exit& exit) = 0;
  // The command got all bytes of its standard input before `offset`.
  virtual void OnStdinTaken(const std::string& /*command*/, uint64_t /*offset*/) {}
  // Nobody reads the command's standard input any more; what was not taken is lost. Comes before the command's exit
  // when the command ended with input left or before the end of its input.
  virtual void OnStdinClosed(const std::string& /*command*/) {}
  // The connection ended (once); no calls follow. Not called after the owner's own Close().
  virtual void OnClosed(const Error& why) = 0;
};

struct GuestUser {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::string name;
};

// Pulls bytes for an upload; an empty string means end of input.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual Task<std::string> Next() = 0;
};

// The bytes of a file being read; an empty string means end of file. Destroying it early aborts the read.
class FileStream : public ByteSource {};

// A part of a file. No length: up to its end.
struct FileRange {
  uint64_t offset = 0, length = 0;
};

using FileEdit = std::variant<protocol::MakeDir, protocol::SetAttributes, protocol::RenameFile, protocol::RemoveFile,
                              protocol::MakeLink>;

class GuestLink {
 public:
  virtual ~GuestLink() = default;
  // Before a call that sends frames or fields which came after the oldest version: kConflict when the agent, which is
  // as old as its machine, does not know them.
  virtual Result<> Require(const protocol::Feature& feature) const = 0;
  // Commands that the agent knew at HelloAck: so that recovery can tell a lost command from a live one.
  virtual const std::vector<protocol::CommandState>& known_commands() const = 0;
  // Those of them that take input, and where their input continues: WriteStdin at StdinState::accepted.
  virtual const std::vector<protocol::StdinState>& known_stdins() const = 0;
  // Error codes: kExecutableNotFound (also: there, but cannot be executed), kBadRequest (cwd, arguments), kTooLarge,
  // kTooMany, kStopping (quiescing), kConflict (duplicate id, or the agent is too old for standard input or a
  // terminal), kUnavailable, kTimeout. A call that times out or is
  // cancelled before the agent answered has its command killed and acknowledged by the link itself.
  virtual Task<> Exec(protocol::Exec request) = 0;
  virtual void Ack(const std::string& command, uint64_t offset) = 0;
  virtual void AckExit(const std::string& command) = 0;
  virtual void Kill(const std::string& command, int signal) = 0;
  // To the channel of a command that was started with one. Returns when the bytes are on their way, not when the
  // command has read them; no more than protocol::kMaxInput may be unread.
  virtual Task<> Input(std::string command, std::string bytes) = 0;
  // Standard input of a command that takes it (protocol::Exec::TakesInput). `offset` counts all bytes since the command
  // began. Bytes that the agent has are skipped; a gap is kBadRequest. WriteStdin waits as long as the command reads
  // nothing: there is no time limit, cancel it. It returns when the last byte is on its way, not when the command has
  // read it (GuestEvents::OnStdinTaken says that). When nobody reads any more, both succeed and discard.
  // kNotFound: no such command, or it takes no input. kConflict: the input has ended, or another WriteStdin is waiting.
  virtual Task<> WriteStdin(std::string command, uint64_t offset, std::string bytes) = 0;
  // The input ends at `offset`, up to which all bytes were written. Again is harmless.
  virtual Task<> EndStdin(std::string command, uint64_t offset) = 0;
  // As known to this side: `accepted` is what was sent. Nothing: no such command, or it takes no input.
  virtual std::optional<protocol::StdinState> Stdin(const std::string& command) const = 0;
  // kBadRequest: more than protocol::kMaxTerminalSide. kNotFound: no such command. One without a terminal ignores it.
  virtual Task<> Resize(std::string command, protocol::TerminalSize size) = 0;
  // Errors: kNotFound for a missing file, kFileError otherwise (the message says why, Error::sys_errno which kind).
  // Returns when the file is open.
  virtual Task<std::unique_ptr<FileStream>> ReadFile(std::string path, std::string cwd, GuestUser user,
                                                     FileRange range = {}) = 0;
  virtual Task<> WriteTar(std::string cwd, GuestUser user, ByteSource* source) = 0;       // source outlives the task
  virtual Task<> WritePlainTar(std::string cwd, GuestUser user, ByteSource* source) = 0;  // the same, not compressed
  virtual Task<> MakeDir(std::string path, std::string cwd, GuestUser user, bool recursive) = 0;
  // Calls on single files; errors as for ReadFile, and kConflict when the agent is too old.
  virtual Task<std::vector<protocol::FileEntry>> ListDir(protocol::ListDir request) = 0;
  virtual Task<protocol::FileEntry> StatFile(protocol::StatFile request) = 0;
  virtual Task<> WriteFile(protocol::WriteFile request, ByteSource* source) = 0;  // source outlives the task
  virtual Task<> EditFile(FileEdit change) = 0;
  // What the machine wrote to its root (path empty; only where it has a kernel of its own), or all files below a path,
  // as a tree (wire/tree.h); and the reverse, into an existing directory. Errors as for ReadFile.
  virtual Task<std::unique_ptr<FileStream>> PackTree(std::string path) = 0;
  virtual Task<> UnpackTree(std::string path, ByteSource* source) = 0;  // source outlives the task
  // A connected, non-blocking byte stream to a server in the machine, through the agent; it ends with the link. Errors
  // as for Machine::Dial, and kTooMany.
  virtual Task<Fd> Dial(uint16_t port) = 0;
  // Ends the programs and writes the files out. This may take long. kTimeout when the agent sends nothing for `silence`
  // (0: LinkDeadlines::silence).
  virtual Task<protocol::Quiesced> Quiesce(std::chrono::milliseconds grace,
                                           std::chrono::milliseconds silence = std::chrono::milliseconds(0)) = 0;
  // Writes the files out; the programs go on. Gives up on a silent agent as Quiesce does.
  virtual Task<protocol::Quiesced> WriteOut() = 0;
  // For a machine that went on from a saved memory: see protocol/guest_frames.h. Close the link afterwards and open
  // another.
  virtual Task<> Rekey(protocol::Rekey request) = 0;
  // While the daemon itself has paused the machine, silence inside a frame does not break the link.
  virtual void SetPaused(bool paused) = 0;
  // Ends the connection and joins its tasks; the machine goes on. Must be awaited before destruction.
  virtual asio::awaitable<void> Close() = 0;
};

// How long a silent agent is waited for.
struct LinkDeadlines {
  std::chrono::milliseconds hello{10000};
  std::chrono::milliseconds call{30000};     // answer to Exec, opening of a file, mkdir; Quiesce beyond its grace
  std::chrono::milliseconds stall{60000};    // between two steps of a file transfer
  std::chrono::milliseconds frame{10000};    // between two bytes of one frame; then the agent has broken the protocol
  std::chrono::milliseconds silence{30000};  // without a sign of life during Quiesce or WriteOut
};

// Performs the Hello exchange; with a key (Machine::AgentKey), an agent that does not say it is refused. `events`
// outlives the link. The first event comes one turn of the loop after this returns: await it directly (it has its own
// deadline), so that you hold the link by then.
Task<std::unique_ptr<GuestLink>> OpenGuestLink(asio::local::stream_protocol::socket socket, GuestEvents* events,
                                               LinkDeadlines limits = {}, std::string key = {});

}  // namespace sandbar::engine
