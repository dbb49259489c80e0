// The role Files: reading and writing in the machine of a running session. Single loop. Relative paths start at `cwd`,
// which itself starts at the session's working directory.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "async/task.h"
#include "engine/guest_link/guest_link.h"
#include "sandbox/scope.h"

namespace sandbar::sandbox {

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
};

}  // namespace sandbar::sandbox
