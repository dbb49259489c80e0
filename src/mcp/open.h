// The sandbox that a call is about: made at the first call that needs one, kept for as long as calls come.
//
// One that is made here has no network unless the connection says otherwise, is not persistent, and carries a tag. Only
// of those with the tag the time limit is moved and a stopped one is replaced: a sandbox that somebody else made is
// used as it is. Single loop.
#pragma once

#include <string>

#include "mcp/tools.h"

namespace sandbar::mcp {

struct Opened {
  store::Sandbox sandbox;
  store::Session session;  // running
  std::string note;        // what a model must know about it; mostly empty
};

inline constexpr char kMadeByTag[] = "sandbar.mcp";

// Finds it running, resumes or makes it.
Task<Opened> OpenSandbox(const ToolCall* call);
// Only when it is there; its session may have ended.
Task<Opened> FindSandbox(const ToolCall* call);

}  // namespace sandbar::mcp
