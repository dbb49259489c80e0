// File operations, each in a forked child that has become the user: whatever the guest put at a path (a FIFO, a device,
// a file system that hangs) can only hurt that child, which the agent kills at a deadline.
//
// The child speaks GuestFrames (Data, End, FileError; no hello) up a pipe; an upload's bytes come down another one.
// Only regular files are opened, always non-blocking. Loop thread only.
#pragma once

#include <sys/types.h>

#include <variant>

#include "base/fd.h"
#include "base/result.h"
#include "guest/launch.h"
#include "protocol/guest_frames.h"

namespace sandbar::guest {

using FileRequest =
    std::variant<protocol::ReadFile, protocol::WriteTar, protocol::MakeDir, protocol::PackTree, protocol::UnpackTree,
                 protocol::ListDir, protocol::StatFile, protocol::WriteFile, protocol::SetAttributes,
                 protocol::RenameFile, protocol::RemoveFile, protocol::MakeLink>;

// Its bytes come from the daemon.
inline bool IsUpload(const FileRequest& request) {
  return std::holds_alternative<protocol::WriteTar>(request) || std::holds_alternative<protocol::UnpackTree>(request) ||
         std::holds_alternative<protocol::WriteFile>(request);
}

inline constexpr size_t kWorkerChunk = 64 << 10;
// Files that do not know their size (procfs) are read up to this.
inline constexpr uint64_t kMaxUnsized = 16 << 20;

struct Worker {
  pid_t pid = 0;
  Fd up;    // non-blocking, reading
  Fd down;  // non-blocking, writing; only for uploads
};

Result<Worker> StartWorker(const ChildSetup& setup, const FileRequest& request);

// The operations themselves, for the child (and for tests): paths are relative to the current directory.
class FrameOut;
Result<> ReadFileTo(const protocol::ReadFile& request, FrameOut& out);
Result<> ExtractFrom(int in, bool gzip, const std::string& cwd);
Result<> MakeDirectory(const std::string& path, bool recursive);
protocol::FileError ToFileError(uint32_t stream, const Error& error);

// Blocking writer of frames of one stream.
class FrameOut {
 public:
  FrameOut(int fd, uint32_t stream) : fd_(fd), stream_(stream) {}
  uint32_t stream() const { return stream_; }
  Result<> Send(const protocol::GuestFrame& frame);

 private:
  int fd_;
  uint32_t stream_;
};

}  // namespace sandbar::guest
