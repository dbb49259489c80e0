// Fetches the source of a new sandbox (sandbox/sandboxes/source.h): by a command of our own, which no caller can see,
// before the session runs. Single loop; a part of Session.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "sandbox/sandboxes/source.h"
#include "sandbox/sessions/session_network.h"
#include "sandbox/sessions/session_state.h"

namespace sandbar::sandbox {

class SourceFetch {
 public:
  SourceFetch(SessionState* state, SessionNetwork* network) : state_(state), network_(network) {}

  // Runs the source's command under the source's policy; afterwards nothing is allowed.
  Task<> Run(SourceSpec spec);

  // Events of the machine.
  void OnOutput(const std::string& command, std::string_view bytes);
  void OnExit(const protocol::Exit& exit);
  void OnLost(const std::string& why);

 private:
  struct Running {
    explicit Running(const asio::any_io_executor& ex) : changed(ex) {}
    std::string id, output, lost;
    std::optional<int> exit_code;
    Event changed;
  };
  Task<> AwaitExit();

  SessionState* state_;
  SessionNetwork* network_;
  std::unique_ptr<Running> running_;
};

}  // namespace sandbar::sandbox
