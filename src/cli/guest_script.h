// Shell scripts that a command of ours runs in a sandbox: to pack files, to look at them, to delete its own scratch
// files. Single loop; pointers outlive the tasks.
//
//   GuestScript script{.text = "stat -c %s -- \"$1\"", .args = {path}};
//   SB_CO_TRY(Ran ran, co_await RunInGuest(api, session, std::move(script)));
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "cli/server_endpoint.h"
#include "cli/signals.h"

namespace sandbar::cli {

struct GuestScript {
  std::string text;  // for `sh -c`; $1 and so on are `args`
  std::vector<std::string> args;
  std::optional<std::string> cwd;  // without it, the sandbox's working directory
  bool root = false;               // without it, the sandbox's user runs the script
};

struct Ran {
  int64_t code = 0;
  std::string out, err;  // each cut after 1 MiB
};

Task<Ran> RunInGuest(ApiClient* api, std::string session, GuestScript script);
// The same until a signal comes. A signal kills the script in the sandbox and gives kCancelled.
Task<Ran> RunUnlessSignalled(ApiClient* api, Signals* signals, std::string session, GuestScript script);

}  // namespace sandbar::cli
