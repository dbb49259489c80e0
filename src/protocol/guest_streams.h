// Frames about files and connections. Part of protocol/guest_frames.h, which says how they become bytes.
//
// File operations are streams with u32 ids chosen by the daemon, each one higher than the last, with Credit-based flow
// control per stream: a side may have at most kStreamWindow bytes of Data in flight that were not credited back. The
// agent ends every stream with exactly one End (success) or FileError, an aborted one too; what the daemon sends for a
// stream that has ended is ignored (it crossed on the way).
//
// A Dial is a stream to a TCP server in the machine, by the same rules, but Data flows both ways: the agent says Dialed
// when the server has accepted, or FileError; End closes one direction, and the stream is over when both are.
#pragma once

#include <cstdint>
#include <string>

#include "protocol/guest_limits.h"

namespace sandbar::protocol {

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

// daemon -> guest
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
struct Dial {
  uint32_t stream = 0;
  uint16_t port = 0;
};  // to 127.0.0.1:port, or [::1]:port

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
struct FileError {
  uint32_t stream = 0;
  FileErrorKind kind = FileErrorKind::kOther;
  std::string message;
};
struct Dialed {
  uint32_t stream = 0;
};  // connected

}  // namespace sandbar::protocol
