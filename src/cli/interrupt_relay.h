// Ctrl-C while a command runs in a sandbox: the first one goes to the command, every further signal is for us. Single
// loop.
//
//   InterruptRelay relay{api, &signals, session, &handle};
//   auto first = co_await (std::move(work) || relay.WaitToLeave());
#pragma once

#include <string>

#include "cli/attached_command.h"
#include "cli/server_endpoint.h"
#include "cli/signals.h"

namespace sandbar::cli {

struct InterruptRelay {
  ApiClient* api;
  Signals* signals;
  std::string session;
  const CommandHandle* command;  // null: there is none to tell

  // The number of the first signal, once we are to leave: at the first one that is no SIGINT, or finds no command that
  // it could be sent to; else at the second.
  Task<int> WaitToLeave();
  bool passed_on = false;
};

Task<> SendSignal(ApiClient* api, std::string session, std::string command, int signal);

}  // namespace sandbar::cli
