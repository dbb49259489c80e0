// One session of Claude's managed agents, served: reads its events, runs the tool calls that are ours in a sandbox,
// posts the results. Single loop.
//
//   ClaudeSession session(&claude, work, &tools, limits, say);
//   SB_CO_TRY(ClaudeSession::End end, co_await session.Run());
//
// The stream is attached before the history is read, so that nothing falls between the two; ids keep what is in both
// from running twice. A call that somebody has to confirm waits for an explicit "allow"; everything unknown counts as
// "no". Calls of tools that are not ours are somebody else's and left alone.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "llm/claude_api.h"
#include "llm/claude_tools.h"

namespace sandbar::llm {

struct ClaudeSessionLimits {
  std::chrono::milliseconds max_idle{60'000};      // after the end of a turn
  std::chrono::milliseconds send_window{300'000};  // how long a result is tried to be sent
};

class ClaudeSession {
 public:
  using Say = std::function<void(const std::string& line)>;
  enum class End { kIdle, kTerminated };

  ClaudeSession(ClaudeApi* claude, Work work, ClaudeTools* tools, ClaudeSessionLimits limits, Say say)
      : claude_(claude), work_(std::move(work)), tools_(tools), limits_(limits), say_(std::move(say)) {}

  // Until the session is idle or over. An Error: the service said no for good, or the sandbox is gone.
  Task<End> Run();

 private:
  Task<std::optional<End>> Attached();
  Task<> Reconcile();
  Task<std::optional<End>> Follow(http::ClientResponse* stream);
  Task<std::optional<End>> Handle(json::object event);
  Task<> Route(json::object call);
  Task<> Execute(json::object call);
  Task<> Post(json::object result);
  void Note(const json::object& event);
  bool Waiting() const { return !held_.empty(); }

  ClaudeApi* claude_;
  Work work_;
  ClaudeTools* tools_;
  ClaudeSessionLimits limits_;
  Say say_;
  std::set<std::string> seen_, answered_;
  std::map<std::string, std::string> verdicts_;
  std::map<std::string, json::object> held_;
  std::optional<std::chrono::steady_clock::time_point> idle_since_;
  bool terminated_ = false;
};

}  // namespace sandbar::llm
