// The tools that a model gets, and the context of a call. Each tool is a coroutine over the domain's roles. It returns
// an Error when the tool itself fails, and a result when a program in the sandbox fails. Single loop; a Connection and
// a ToolCall outlive the call.
//
//   ToolCall call{.connection = &connection, .arguments = …};
//   auto result = co_await FindTool(connection, "run_command")->function(&call);
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "async/task.h"
#include "sandbox/roles.h"

namespace sandbar::mcp {

namespace json = boost::json;

class Cells;

struct Settings {
  int64_t handle_after_ms = 40'000;  // clients give up on a call after 60 s
  int64_t idle_ms = 15 * 60'000;     // a sandbox made here ends this long after the last call
  int64_t progress_ms = 1000;        // between two reports
};

// The connection of a client: the settings that hold for all its calls.
struct Connection {
  const sandbox::Roles* domain = nullptr;
  Cells* cells = nullptr;  // cells.h: code that goes on after its call
  sandbox::Scope scope;
  Settings settings;
  std::string sandbox;            // the sandbox of calls that name none
  bool sandbox_argument = false;  // a call may name another one
  bool admin = false;             // snapshot, fork, network
  sandbox::CreateSpec make;       // how a sandbox that is not there is made
  json::object server_info;
  std::function<std::string(const store::PortRoute&)> preview_url;
  std::function<std::string(const Error&)> public_message;
};

// Tells the client that a call is still at work. Sends nothing when the client did not ask.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual Task<> Report(double progress, std::string text) = 0;
};

// The command or code that a call waits for: whoever ends the call early ends it too.
struct Waited {
  std::string session, command;
  std::string cell;        // a handle
  bool abandoned = false;  // the client is gone
};

struct ToolCall {
  const Connection* connection = nullptr;
  std::string sandbox;
  json::object arguments;
  Progress* progress = nullptr;
  Waited* waited = nullptr;
};

struct ToolResult {
  json::array content;
  bool is_error = false;
};
ToolResult TextResult(std::string_view text);

using ToolFunction = Task<ToolResult> (*)(ToolCall*);

// The role that a tool needs, by its effect. It has no default: a tool without a role does not compile.
struct ToolRole {
  constexpr explicit ToolRole(sandbox::KeyRole role) : needed(role) {}
  sandbox::KeyRole needed;
};

struct Tool {
  std::string_view name;
  std::string_view description;
  std::string_view properties;  // JSON Schema of the arguments
  std::string_view required;    // a JSON array
  ToolFunction function;
  ToolRole role;
  bool read_only = false;
  bool destructive = false;
  bool idempotent = false;
  bool admin = false;
};

// Null: there is none, or not at this connection. The caller's role is not asked.
const Tool* FindTool(const Connection& connection, std::string_view name);
// Those that the caller's role allows.
json::array ListTools(const Connection& connection);

// commands.cc
Task<ToolResult> RunCommand(ToolCall* call);
Task<ToolResult> ReadOutput(ToolCall* call);
// code.cc
Task<ToolResult> RunCode(ToolCall* call);
// files.cc
Task<ToolResult> ReadFile(ToolCall* call);
Task<ToolResult> WriteFile(ToolCall* call);
Task<ToolResult> EditFile(ToolCall* call);
Task<ToolResult> ListFiles(ToolCall* call);
// sandboxes.cc
Task<ToolResult> ExposePort(ToolCall* call);
Task<ToolResult> TakeSnapshot(ToolCall* call);
Task<ToolResult> ForkSandbox(ToolCall* call);
Task<ToolResult> SetNetwork(ToolCall* call);

}  // namespace sandbar::mcp
