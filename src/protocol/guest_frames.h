// The protocol between the daemon and sandbar-guest (PID 1 of a machine): bytes <-> values, no fds, no clock.
//
// A frame is: u32 length (of what follows), u8 type, payload. All integers little-endian (base/bytes.h).
// The connection starts with a Hello from the daemon that carries a magic and a nonce; the agent discards bytes until
// it sees the magic, answers with HelloAck echoing the nonce, and the daemon discards until that.
//
// Hello and HelloAck say which versions the sender speaks, and both sides use the highest that both do. The oldest is
// in the frame, where version 1 has its only one. The newest is in front of it, behind a magic of its own: a peer of
// version 1 discards it like everything before the magic that it knows, and takes the rest for a hello of version 1.
// From version 2 on frames get new fields at their end, and who does not know them ignores them (protocol/codec.h); new
// types of frames go only to a side that has the version (protocol/versions.h).
//
// A channel without boundaries (virtio-serial, a socket that somebody else holds) outlives the daemon's connections: it
// is a *stream*. There a magic begins a new session wherever it stands, in the middle of a frame that will never be
// completed too; within frames every 0x7f is followed by a zero, so that none can contain a magic. The agent knows what
// it has; the daemon sends the same Hello everywhere, and the magic of the answer (kStreamMagic) tells it to escape
// from there on. Whoever holds the stream while no daemon is there sends kGuestGone.
//
// An agent that was told a key of its machine (protocol/vm_config.h: after a start from a template, where every agent
// looks alike) says it in HelloAck; a daemon that knows the key takes no other answer.
//
// Commands have string ids chosen by the daemon; they outlive connections. Output carries absolute offsets, counted
// over stdout, stderr and the channel together. The agent keeps bytes until Ack: Ack(offset) both frees them and opens
// the window (the agent sends at most kOutputWindow bytes past the last Ack, and while connected reads no more from the
// pipes than it may send, so a daemon that withholds Acks slows the command down: back-pressure). While no daemon is
// connected the agent goes on reading: it keeps the first and last part of the unacknowledged bytes and reports the
// hole as a Gap. An Exit is sent again on every connection until ExitAck.
//
// A command may be started with a channel: one end of a socket pair as its descriptor 3, or 0. Input frames are written
// to it, what it says comes as Output of stream 3, never before what it wrote to stdout and stderr earlier. The agent
// holds at most kMaxInput bytes that the command did not read yet; a daemon that sends more loses the command.
//
// File operations are streams with u32 ids chosen by the daemon, each one higher than the last, with Credit-based flow
// control per stream: a side may have at most kStreamWindow bytes of Data in flight that were not credited back. The
// agent ends every stream with exactly one End (success) or FileError, an aborted one too; what the daemon sends for a
// stream that has ended is ignored (it crossed on the way).
//
// A Dial is a stream to a TCP server in the machine, by the same rules, but Data flows both ways: the agent says Dialed
// when the server has accepted, or FileError; End closes one direction, and the stream is over when both are.
// A machine that goes on from a saved memory has an agent that knows commands by the names of another session: Renew
// tells it the new ones, with what a copy must not share with its original (random numbers) or has missed (the time).
// The agent answers Renewed and says no more until the next Hello.
// Everything from the guest is hostile: decode with bounds; unknown types and ids close the channel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "protocol/versions.h"

namespace sandbar::protocol {

// Version 1: of agents and servers that know one version only and refuse a frame with further fields.
// Version 2: says which versions it speaks, ignores the fields of a frame that it does not know.
inline constexpr uint32_t kOldestGuestVersion = 1;
VersionRange GuestVersions();

inline constexpr std::string_view kVersionsMagic = "\x7fSANDBAV";  // and the newest version, one byte, before a hello
inline constexpr std::string_view kGuestMagic = "\x7fSANDBAR";     // 8 bytes, sent before Hello / HelloAck frames
inline constexpr std::string_view kStreamMagic = "\x7fSANDBAS";    // the agent's, on a stream
inline constexpr std::string_view kGuestGone("\x7fSANDBAR\x01\0\0\0\x0f", 13);
inline constexpr size_t kMaxFrame = 1 << 20;      // longest legal length field
inline constexpr size_t kMaxData = 128 << 10;     // longest Output or Data payload
inline constexpr size_t kOutputWindow = 1 << 20;  // unacknowledged output per command
inline constexpr size_t kMaxInput = 4 << 20;      // for a command's channel, not yet taken by it
inline constexpr size_t kStreamWindow = 1 << 20;  // initial credit of a file stream, each way
inline constexpr size_t kSpoolHead = 8 << 20;     // kept per command while the daemon is away
inline constexpr size_t kSpoolTail = 8 << 20;
inline constexpr size_t kMaxCommands = 1024;  // known to the agent at once, exited but unacknowledged ones included
inline constexpr size_t kMaxStreams = 64;     // open file streams at once
inline constexpr size_t kMaxDials = 256;      // open connections to servers at once
inline constexpr size_t kMaxCommandId = 128;  // bytes; ids are never empty
inline constexpr size_t kMaxPath = 4095;      // PATH_MAX without the NUL
inline constexpr size_t kMaxUserName = 256;
inline constexpr size_t kMaxMachineKey = 64;
inline constexpr size_t kMaxEntropy = 256;
inline constexpr size_t kMaxErrorText = 4096;       // error texts
inline constexpr uint64_t kMaxOffset = 1ULL << 60;  // offsets and gaps above this are a lie

enum class FileErrorKind : uint8_t {
  kNotFound,
  kDenied,
  kExists,
  kNotDirectory,
  kIsDirectory,
  kNotRegular,
  kNoSpace,
  kTooLarge,
  kBadArchive,
  kTimeout,
  kOther
};

// Which descriptor of a command is its channel to the daemon.
enum class Channel : uint8_t { kNone, kDescriptor3, kStandardInput };

// daemon -> guest
struct Hello {
  uint32_t oldest = kOldestGuestVersion;
  uint64_t nonce = 0;
  uint32_t newest = 0;  // in front of the frame, when it is above `oldest`
  VersionRange versions() const { return {oldest, std::max(oldest, newest)}; }
};
struct Exec {
  std::string id;
  std::vector<std::string> argv;  // argv[0] is looked up in PATH of env unless it has a slash
  std::vector<std::string> env;   // complete environment, "K=V"
  std::string cwd;                // absolute
  uint32_t uid = 0, gid = 0;
  std::string user;                  // supplementary groups are those of this user in the guest's /etc/group
  uint64_t timeout_ms = 0;           // 0: none; SIGKILL to the group, exit code 137
  Channel channel = Channel::kNone;  // on the wire only when there is one
};
struct Ack {
  std::string id;
  uint64_t offset = 0;
};
struct ExitAck {
  std::string id;
};
struct Kill {
  std::string id;
  int32_t signal = 15;
};  // to the command's process group
struct Credit {
  uint32_t stream = 0;
  uint32_t bytes = 0;
};  // both ways
struct ReadFile {
  uint32_t stream = 0;
  std::string path;
  std::string cwd;
  uint32_t uid = 0, gid = 0;
  std::string user;
};
struct WriteTar {
  uint32_t stream = 0;
  std::string cwd;
  uint32_t uid = 0, gid = 0;
  std::string user;
  bool gzip = true;
};
struct MakeDir {
  uint32_t stream = 0;
  std::string path;
  std::string cwd;
  uint32_t uid = 0, gid = 0;
  std::string user;
  bool recursive = false;
};
struct Data {
  uint32_t stream = 0;
  std::string bytes;
};  // both ways
struct End {
  uint32_t stream = 0;
};  // both ways: no more Data; from the guest: success
struct Abort {
  uint32_t stream = 0;
};  // daemon gives up on a stream
struct Quiesce {
  uint64_t grace_ms = 0;
  bool go_on = false;  // end nothing, only write the files out
};
struct Input {
  std::string id;
  std::string bytes;
};  // for a command's channel; of one that has ended: dropped
struct Gone {};  // the daemon of a stream is gone
struct Dial {
  uint32_t stream = 0;
  uint16_t port = 0;
};  // to 127.0.0.1:port, or [::1]:port
struct Renamed {
  std::string from, to;
};
struct Renew {
  std::string entropy;
  uint64_t clock_ns = 0;  // real time
  std::vector<Renamed> commands;
  std::string machine_key;  // that it says from now on
};

// A tree of files as bytes (wire/tree.h), for machines that are made for nothing else. Packs what the machine wrote to
// its root, when it has a kernel of its own; or everything below a path.
struct PackTree {
  uint32_t stream = 0;
  std::string path;  // empty: what was written
};
struct UnpackTree {
  uint32_t stream = 0;
  std::string path;
};

// guest -> daemon
struct CommandState {
  std::string id;
  uint64_t produced = 0;
  bool exited = false;
};
struct HelloAck {
  uint32_t oldest = kOldestGuestVersion;
  uint64_t nonce = 0;
  std::vector<CommandState> commands;
  std::string machine_key;  // on the wire only when there is one
  uint32_t newest = 0;      // as in Hello
  VersionRange versions() const { return {oldest, std::max(oldest, newest)}; }
};
struct ExecStarted {
  std::string id;
  int32_t pid = 0;
};
enum class ExecFailure : uint8_t { kNotFound, kNotExecutable, kBadCwd, kDuplicate, kQuiescing, kNoResources, kOther };
struct ExecFailed {
  std::string id;
  ExecFailure kind = ExecFailure::kOther;
  std::string message;
};
struct Output {
  std::string id;
  uint64_t offset = 0;
  uint8_t stream = 1;
  std::string bytes;
};  // stream 1, 2, or 3: the channel
struct Gap {
  std::string id;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};  // bytes lost at this offset
struct Exit {
  std::string id;
  int32_t code = 0;  // shell style: 128+n for a signal
  bool timed_out = false;
  uint64_t duration_ms = 0;
  uint64_t final_offset = 0;   // all Output (or Gap) up to here was sent before
  bool out_of_memory = false;  // the machine's own kernel has killed for want of memory; of others the host knows
};
struct FileError {
  uint32_t stream = 0;
  FileErrorKind kind = FileErrorKind::kOther;
  std::string message;
};
struct Quiesced {
  bool clean = false;
  uint32_t killed = 0;
};  // clean: everything ended on SIGTERM
struct Dialed {
  uint32_t stream = 0;
};  // connected
struct Renewed {};

using HostFrame = std::variant<Hello, Exec, Ack, ExitAck, Kill, Credit, ReadFile, WriteTar, MakeDir, Data, End, Abort,
                               Quiesce, Input, Gone, Dial, PackTree, UnpackTree, Renew>;
using GuestFrame = std::variant<HelloAck, ExecStarted, ExecFailed, Output, Gap, Exit, Credit, Data, End, FileError,
                                Quiesced, Dialed, Renewed>;

// A whole frame including the length prefix; Hello and HelloAck with the magic in front of it.
// The position of a type in its variant is its number on the wire: append only.
std::string Encode(const HostFrame& frame);
std::string Encode(const GuestFrame& frame);

// The same for a stream, from the agent (HelloAck with the other magic) and from the daemon (never a Hello).
std::string EncodeForStream(const GuestFrame& frame);
std::string EncodeForStream(const HostFrame& frame);

// Incremental decoder. Feed() bytes; Next() yields a frame, nothing (needs more), or kProtocol (close the channel).
// Until a magic was seen it discards (the magic is consumed). Every string and number of a frame that comes out is
// within the bounds above; empty Output, Data, Gap and Credit are refused.
template <class Frame>
class FrameDecoder {
 public:
  // `synced`: for a channel without a hello (the agent's own workers).
  explicit FrameDecoder(bool synced = false) : synced_(synced) {}
  void Feed(std::string_view bytes);
  Result<bool> Next(Frame& out);  // true: out holds a frame
  // Back to discarding until the next magic: the hello just seen was an old one.
  void Resync();
  // What is fed is a stream: a magic drops what came before it, escapes are undone. kStreamMagic says so too.
  void SetStream() { stream_ = true; }
  bool stream() const { return stream_; }
  // The hello is over: from now on a magic, or an escape that is none, is kProtocol like any other bad frame.
  void ForbidMagic() { magic_forbidden_ = true; }
  size_t buffered() const { return buffer_.size() - start_; }
  // A frame has begun that has not ended.
  bool incomplete() const { return synced_ && (buffered() > 0 || matched_ > 0); }

 private:
  void AfterEscape(char c);

  std::string buffer_;
  size_t start_ = 0;
  bool synced_ = false;
  bool stream_ = false;
  bool magic_forbidden_ = false;
  bool lost_ = false;   // where frames begin: a forbidden magic came
  size_t matched_ = 0;  // how much of a magic, or of an escape, was seen last
  uint8_t newest_ = 0;  // what kVersionsMagic said, until the hello that it belongs to
};
extern template class FrameDecoder<HostFrame>;
extern template class FrameDecoder<GuestFrame>;

}  // namespace sandbar::protocol
