// Opens the sandbox of a tool call. The first call that needs a sandbox creates it, and it lives as long as calls come.
//
// A sandbox that is created here is not persistent, carries a tag, and has no network unless the connection's settings
// allow one. Only sandboxes with the tag get their time limit extended and are replaced after they stopped. Sandboxes
// of other creators are used as they are. Single loop.
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

// Finds it running, resumes or makes it. For a caller whose role may not change anything, the same as FindSandbox.
Task<Opened> OpenSandbox(const ToolCall* call);
// Only when it is there; its session may have ended.
Task<Opened> FindSandbox(const ToolCall* call);

}  // namespace sandbar::mcp
