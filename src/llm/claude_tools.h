// The six tools of Claude's agent toolset (bash, read, write, edit, glob, grep), run in a sandbox through the API. What
// they return is the guest's: bounded here, never interpreted. Single loop.
//
//   ClaudeTools tools(&api, box);
//   if (tools.Has(name)) SB_CO_TRY(ToolResult result, co_await tools.Call(std::move(call)));
#pragma once

#include <string>

#include "client/api_client.h"
#include "llm/box.h"
#include "llm/model.h"

namespace sandbar::llm {

class ClaudeTools {
 public:
  ClaudeTools(client::ApiClient* api, Box box) : api_(api), box_(std::move(box)) {}

  static bool Has(std::string_view name);
  // What the tool refuses or a program fails with is a result with is_error. An Error: the sandbox or server is gone.
  Task<ToolResult> Call(ToolCall call);

 private:
  struct Entry {
    std::string_view name;
    Task<ToolResult> (ClaudeTools::*run)(json::object input);
  };
  static const Entry* Find(std::string_view name);
  Task<ToolResult> Bash(json::object input);
  Task<ToolResult> Read(json::object input);
  Task<ToolResult> Write(json::object input);
  Task<ToolResult> Edit(json::object input);
  Task<ToolResult> Glob(json::object input);
  Task<ToolResult> Grep(json::object input);
  Task<ToolResult> RunCell(std::string code, int64_t timeout_ms);

  client::ApiClient* api_;
  Box box_;
};

// Lines `from` to `to`, counted from 1, both included; to = -1: to the end. Exposed for tests.
std::string LinesOf(std::string_view text, int64_t from, int64_t to);
size_t ReplaceText(std::string* text, std::string_view from, std::string_view to);

}  // namespace sandbar::llm
