// A command in a sandbox that has this program's standard streams: its output comes here, our input goes there, and
// with a terminal the keys and the window's size too. Single loop; one command each.
//
//   AttachedCommand attached(ex, api, {.session = session, .sandbox = name, .io = StreamsFor(command.io, true)});
//   int code = *co_await attached.Start(body, &handle);
#pragma once

#include <string>

#include "base/fd.h"
#include "cli/local_terminal.h"
#include "cli/output_follower.h"
#include "cli/output_sink.h"
#include "cli/sandbox_options.h"
#include "cli/server_endpoint.h"
#include "cli/signals.h"
#include "cli/stdin_sender.h"

namespace sandbar::cli {

// What the command gets of ours.
struct Streams {
  bool input = false;
  bool terminal = false;
};
// Looks at what standard input and output are. `has_command`: without one it is a shell, which has a terminal where we
// have one.
Streams StreamsFor(const IoOptions& options, bool has_command);

// The request that starts a command. Without words it is a shell: one that reads commands from standard input, or with
// a terminal a login shell, bash where there is one.
struct CommandLine {
  std::vector<std::string> argv, env;  // env: NAME=VALUE
  std::optional<std::string> cwd;
  bool sudo = false;
  std::optional<int64_t> timeout_ms;
};
json::object CommandBody(const CommandLine& line, const Streams& streams);

// What is known of the command from outside while it runs.
struct CommandHandle {
  std::string id;         // empty: not started yet
  bool detached = false;  // the user left it running
};

class AttachedCommand {
 public:
  struct Settings {
    std::string session;
    std::string sandbox;  // for remarks
    Streams io;
    bool as_json = false;
    bool may_detach = true;   // the sandbox can outlive this program
    bool watch_only = false;  // of a command that is joined
    bool stays = true;        // the sandbox is still there when we fail
  };
  AttachedCommand(const asio::any_io_executor& ex, ApiClient* api, Settings settings);
  AttachedCommand(const AttachedCommand&) = delete;
  AttachedCommand& operator=(const AttachedCommand&) = delete;

  // Starts the command that `body` describes; its exit code, or 0 when the user left it. `handle` may be null.
  Task<int> Start(json::object body, CommandHandle* handle);
  // Joins a command that runs.
  Task<int> Join(std::string id);

 private:
  Result<> Started(const json::object& command);
  Task<json::object> Begin(json::object body);
  Task<int> Attach(Task<json::object> following);
  Task<> EndWithReader();
  Task<> Resizes();
  Task<> Resize(LocalSize size);
  Task<> Explain(json::object command);
  Error WithAttachHint(Error error) const;

  ApiClient* api_;
  Settings settings_;
  Fd nothing_;  // the input of a terminal that has none
  OutputSink sink_;
  OutputFollower follower_;
  StdinSender sender_;
  Signals window_;
  Event started_;
  bool running_ = false;
  bool joined_ = false;
  CommandHandle own_handle_;
  CommandHandle* handle_ = &own_handle_;
  RawMode raw_;
};

}  // namespace sandbar::cli
