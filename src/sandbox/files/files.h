// The role Files: reading and writing in the machine of a running session. Single loop. Relative paths start at `cwd`,
// which itself starts at the session's working directory. Errors: kNotFound for a missing file, kFileError otherwise,
// with the kind in Error::sys_errno; kConflict when the machine's agent is too old for a call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "engine/guest_link/guest_link.h"
#include "sandbox/scope.h"

namespace sandbar::sandbox {

// Where a call on a single file goes, and as whom.
struct FileTarget {
  std::string session;
  std::string path;
  std::optional<std::string> cwd;
  bool sudo = false;
};

struct FileList {
  std::vector<protocol::FileEntry> entries;  // in the order of their names' bytes
  bool more = false;
};

class Files {
 public:
  virtual ~Files() = default;
  virtual Task<std::unique_ptr<engine::FileStream>> Read(Scope scope, std::string session, std::string path,
                                                         std::optional<std::string> cwd) = 0;
  // `source` is a gzip'd tar archive and outlives the call.
  virtual Task<> WriteTar(Scope scope, std::string session, std::optional<std::string> cwd,
                          engine::ByteSource* source) = 0;
  virtual Task<> MakeDir(Scope scope, std::string session, std::string path, std::optional<std::string> cwd,
                         bool recursive) = 0;

  virtual Task<std::unique_ptr<engine::FileStream>> ReadRange(Scope scope, FileTarget target,
                                                              engine::FileRange range) = 0;
  virtual Task<FileList> List(Scope scope, FileTarget directory, std::string after, uint32_t limit) = 0;
  virtual Task<protocol::FileEntry> Stat(Scope scope, FileTarget target, bool follow) = 0;
  // The place in `how` and `change` is the target's. `source` outlives the call.
  virtual Task<> Write(Scope scope, FileTarget target, protocol::WriteFile how, engine::ByteSource* source) = 0;
  virtual Task<> Edit(Scope scope, FileTarget target, engine::FileEdit change) = 0;
};

}  // namespace sandbar::sandbox
