// Frames about files and connections. Part of protocol/guest_frames.h, which says how they become bytes.
//
// File operations are streams with u32 ids chosen by the daemon, each one higher than the last, with Credit-based flow
// control per stream: a side may have at most kStreamWindow bytes of Data in flight that were not credited back. The
// agent ends every stream with exactly one End (success) or FileError, an aborted one too; what the daemon sends for a
// stream that has ended is ignored (it crossed on the way).
//
// Calls on single files (version 4) are such streams too. ListDir and StatFile answer with entries
// (protocol/file_entry.h) as Data, WriteFile takes the file's bytes as Data, the others answer End or FileError only.
//
// A Dial is a stream to a TCP server in the machine, by the same rules, but Data flows both ways: the agent says Dialed
// when the server has accepted, or FileError; End closes one direction, and the stream is over when both are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "protocol/guest_limits.h"
#include "protocol/versions.h"

namespace sandbar::protocol {

inline constexpr Feature kFileCalls{4, "list and change single files"};

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
  kOther,
  kNotEmpty,  // since version 4, in answers to its frames
  kInvalid
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
  uint64_t offset = 0;  // since version 4
  uint64_t length = 0;  // since version 4; 0: up to the end
};
struct WriteTar {
  uint32_t stream = 0;
  std::string cwd;
  uint32_t uid = 0, gid = 0;
  std::string user;
  bool gzip = true;
};
// A path, who goes there, and where relative paths start.
struct FilePlace {
  uint32_t stream = 0;
  std::string path;
  std::string cwd;
  uint32_t uid = 0, gid = 0;
  std::string user;
};
struct MakeDir : FilePlace {
  bool recursive = false;
  std::optional<uint32_t> mode;  // since version 4
};
// The names after `after` in the order of their bytes, `limit` at most.
struct ListDir : FilePlace {
  std::string after;
  uint32_t limit = kMaxListed;
};
struct StatFile : FilePlace {
  bool follow = true;  // the target of a symbolic link, not the link
};
// Bytes into a regular file. `whole`: they are all of the file, which changes at the end of the stream and not before.
// Otherwise they go into the file that is there, from `offset` on.
struct WriteFile : FilePlace {
  uint64_t offset = 0;
  bool whole = false;
  bool create = true;      // when there is none
  bool exclusive = false;  // there must be none
  bool truncate = false;
  bool append = false;  // at the end, wherever it is; `offset` does not matter
  uint32_t mode = 0644;
};
struct SetAttributes : FilePlace {
  bool follow = true;
  std::optional<uint64_t> size;
  std::optional<uint32_t> owner, group, mode;
  std::optional<int64_t> accessed_ns, modified_ns;  // since 1970
};
struct RenameFile : FilePlace {
  std::string to;
  bool replace = false;  // what is there already
};
struct RemoveFile : FilePlace {
  enum class What : uint8_t { kFile, kEmptyDirectory, kFileOrEmptyDirectory, kTree };
  What what = What::kFile;
};
// At `path`.
struct MakeLink : FilePlace {
  std::string target;
  bool symbolic = true;
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
