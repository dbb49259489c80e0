// The protocol between the daemon and sandbar-guest (PID 1 of a machine): bytes <-> values, no fds, no clock.
//
// A frame is: u32 length (of what follows), u8 type, payload. All integers little-endian (base/bytes.h).
// The connection starts with a Hello from the daemon that carries a magic and a nonce; the agent discards bytes until
// it sees the magic, answers with HelloAck echoing the nonce, and the daemon discards until that.
//
// Hello and HelloAck say which versions the sender speaks. Both sides use the highest version that both speak. The
// oldest version is in the frame, in the field where version 1 has its only version. The newest version is sent before
// the frame, after a magic of its own. A peer of version 1 skips it, because it skips all bytes before the magic that
// it knows. From version 2 on, new fields are appended to frames, and a receiver ignores fields that it does not know
// (protocol/codec.h). New types of frames are sent only to a side that has the version (protocol/versions.h).
//
// A *stream* is a channel that outlives the daemon's connections: virtio-serial, or a socket that another process
// holds. It does not show where one connection ends and the next begins. So a magic begins a new session wherever it
// stands, even inside an unfinished frame. Inside frames every 0x7f is followed by a zero, so no frame contains a
// magic. The agent knows which kind of channel it has. The daemon sends the same Hello on both kinds. When the answer
// begins with kStreamMagic, the daemon escapes its frames from then on. The process that holds the stream sends
// kGuestGone while no daemon is connected.
//
// An agent that was told a key of its machine (protocol/vm_config.h: after a start from a template, where every agent
// looks alike) says it in HelloAck; a daemon that knows the key takes no other answer.
//
// After a start from saved memory, the agent knows its commands under the ids of another session. Rekey gives it the
// new ids, fresh random numbers (a copy must not share them with its original) and the current time. The agent answers
// Rekeyed, and sends nothing more until the next Hello.
//
// protocol/guest_commands.h explains the frames about commands, protocol/guest_streams.h those about files and
// connections.
//
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
#include "protocol/guest_commands.h"
#include "protocol/guest_limits.h"
#include "protocol/guest_streams.h"
#include "protocol/versions.h"

namespace sandbar::protocol {

// Version 1: of agents and servers that know one version only and refuse a frame with further fields.
// Version 2: says which versions it speaks, ignores the fields of a frame that it does not know.
// Version 3: has standard input and terminals (kStandardInput, kTerminals).
// Version 4: has calls on single files (kFileCalls).
inline constexpr uint32_t kOldestGuestVersion = 1;
VersionRange GuestVersions();

inline constexpr std::string_view kVersionsMagic = "\x7fSANDBAV";  // and the newest version, one byte, before a hello
inline constexpr std::string_view kGuestMagic = "\x7fSANDBAR";     // 8 bytes, sent before Hello / HelloAck frames
inline constexpr std::string_view kStreamMagic = "\x7fSANDBAS";    // the agent's, on a stream
inline constexpr std::string_view kGuestGone("\x7fSANDBAR\x01\0\0\0\x0f", 13);
inline constexpr size_t kMaxFrame = 1 << 20;  // longest legal length field

// daemon -> guest
struct Hello {
  uint32_t oldest = kOldestGuestVersion;
  uint64_t nonce = 0;
  uint32_t newest = 0;  // in front of the frame, when it is above `oldest`
  VersionRange versions() const { return {oldest, std::max(oldest, newest)}; }
};
struct Quiesce {
  uint64_t grace_ms = 0;
  bool go_on = false;  // end nothing, only write the files out
};
struct Gone {};  // the daemon of a stream is gone
struct Renamed {
  std::string from, to;
};
struct Rekey {
  std::string entropy;
  uint64_t clock_ns = 0;  // real time
  std::vector<Renamed> commands;
  std::string machine_key;  // that it says from now on
};

// guest -> daemon
struct HelloAck {
  uint32_t oldest = kOldestGuestVersion;
  uint64_t nonce = 0;
  std::vector<CommandState> commands;
  std::string machine_key;  // on the wire only when there is one
  uint32_t newest = 0;      // as in Hello
  // Of the commands that take input. On the wire only when there are any: for a daemon of version 1 leave it empty.
  std::vector<StdinState> stdins;
  VersionRange versions() const { return {oldest, std::max(oldest, newest)}; }
};
struct Quiesced {
  bool clean = false;
  uint32_t killed = 0;
};  // clean: everything ended on SIGTERM
struct Rekeyed {};

using HostFrame = std::variant<Hello, Exec, Ack, ExitAck, Kill, Credit, ReadFile, WriteTar, MakeDir, Data, End, Abort,
                               Quiesce, Input, Gone, Dial, PackTree, UnpackTree, Rekey, Stdin, StdinEnd, Resize,
                               ListDir, StatFile, WriteFile, SetAttributes, RenameFile, RemoveFile, MakeLink>;
using GuestFrame = std::variant<HelloAck, ExecStarted, ExecFailed, Output, Gap, Exit, Credit, Data, End, FileError,
                                Quiesced, Dialed, Rekeyed, StdinTaken, StdinClosed>;

// A whole frame including the length prefix; Hello and HelloAck with the magic in front of it.
// The position of a type in its variant is its number on the wire: append only.
std::string Encode(const HostFrame& frame);
std::string Encode(const GuestFrame& frame);

// The same for a stream, from the agent (HelloAck with the other magic) and from the daemon (never a Hello).
std::string EncodeForStream(const GuestFrame& frame);
std::string EncodeForStream(const HostFrame& frame);

// Incremental decoder. Feed() bytes; Next() yields a frame, nothing (needs more), or kProtocol (close the channel).
// Until a magic was seen it discards (the magic is consumed). Every string and number of a frame that comes out is
// within the bounds above; empty Output, Data, Stdin, Gap and Credit are refused.
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
