// One run of a model, from start to end: model, sandbox, files in, loop, files out, transcript, and the
// sandbox gone on every way out. Single loop.
//
//   SessionHooks hooks{.stop = …, .say = …};
//   SB_CO_TRY(SessionDone done, co_await RunSession(&api, std::move(options), std::move(hooks)));
//   return ExitCode(done.outcome.status);
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "llm/box.h"
#include "llm/loop.h"
#include "llm/options.h"

namespace sandbar::llm {

struct SessionHooks {
  // Completes when the user wants to stop; awaited beside the work.
  std::function<Task<int>()> stop;
  // A line of the live view.
  std::function<void(const std::string& line)> say;
  Environment environment;
};

struct SessionDone {
  Outcome outcome;
  std::string sandbox;             // its name; gone unless it was there before
  std::vector<std::string> files;  // downloaded
};

// Never an Error for what has an exit code of its own: outcome.status and reason say it.
Task<SessionDone> RunSession(client::ApiClient* api, RunOptions options, SessionHooks hooks);

// What the model is told about where it is.
std::string SystemPrompt(const Box& box, const std::string& net);

}  // namespace sandbar::llm
