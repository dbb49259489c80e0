// What both directions of `sandbar cp` share.
//
// The rules are those of `docker cp`: a directory that is copied to one that exists becomes a directory in it, unless
// its path ends in "/.", which means its contents; a target that does not exist becomes the copy.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace sandbar::cli {

struct Place {
  std::string sandbox;  // empty: this machine
  std::string path;
};

// The source of a copy. `contents`: the path ended in "/.", which means the contents of the directory.
struct Source {
  std::string path, name;  // name: its last part; empty for a root
  bool contents = false;
};
Source SourceOf(const std::string& path);

// What a path in the sandbox leads to; nothing when there is nothing.
struct GuestFile {
  mode_t mode = 0;
  int64_t mtime = 0;
};
Task<std::optional<GuestFile>> StatInGuest(ApiClient* api, std::string session, std::string path);

Task<int> CopyIn(ApiClient* api, bool as_json, std::string from, Place to);
Task<int> CopyOut(ApiClient* api, bool as_json, Place from, std::string to);

// Names what did not arrive; the exit code that says so, 0 when everything did.
int NameLeftOut(const std::vector<std::string>& names, uint64_t count, bool as_json);

}  // namespace sandbar::cli
