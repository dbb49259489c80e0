#include "mcp/tools.h"

#include <algorithm>
#include <boost/json.hpp>

#include "mcp/output.h"

namespace sandbar::mcp {
namespace {

using sandbox::KeyRole;

// Every word here is paid for in each client's context: short, and only what a model needs to call it right.
constexpr Tool kTools[] = {
    {.name = "run_code",
     .description =
         "Run code; variables and imports survive from call to call. The value of the last expression, output, "
         "figures and written files come back.",
     .properties = R"j({
       "language": {"type": "string", "enum": ["python", "javascript", "typescript", "bash"],
                    "description": "default python"},
       "code": {"type": "string"},
       "cwd": {"type": "string"},
       "timeoutMs": {"type": "integer", "minimum": 1, "description": "default 120000"}})j",
     .required = R"j(["code"])j",
     .function = RunCode,
     .role{KeyRole::kOperator},
     .destructive = true},
    {.name = "run_command",
     .description = "Run a shell command (bash) in the sandbox and wait for it. Returns exit code, time, stdout and "
                    "stderr; a non-zero exit code is a result. A command that takes long returns a handle for "
                    "read_output.",
     .properties = R"j({
       "command": {"type": "string", "description": "e.g. npm test 2>&1 | tail -50"},
       "cwd": {"type": "string"},
       "env": {"type": "object", "additionalProperties": {"type": "string"}},
       "timeoutMs": {"type": "integer", "minimum": 1, "description": "kill it after this long"},
       "background": {"type": "boolean", "description": "return a handle at once, e.g. for servers"}})j",
     .required = R"j(["command"])j",
     .function = RunCommand,
     .role{KeyRole::kOperator},
     .destructive = true},
    {.name = "read_output",
     .description = "Read the output of a command or code that is still running: waits until it ends or waitMs passed.",
     .properties = R"j({
       "handle": {"type": "string"},
       "waitMs": {"type": "integer", "minimum": 0, "description": "0: only look (default: as long as possible)"},
       "after": {"type": "integer", "minimum": 0, "description": "leave out what earlier calls showed"},
       "kill": {"type": "boolean", "description": "end it"}})j",
     .required = R"j(["handle"])j",
     .function = ReadOutput,
     .role{KeyRole::kViewer},  // with kill: kOperator
     .destructive = true},
    {.name = "read_file",
     .description = "Read a text file (by lines) or look at an image (png, jpeg, gif, webp) in the sandbox.",
     .properties = R"j({
       "path": {"type": "string"},
       "offset": {"type": "integer", "minimum": 1, "description": "first line, from 1"},
       "limit": {"type": "integer", "minimum": 1, "description": "number of lines"}})j",
     .required = R"j(["path"])j",
     .function = ReadFile,
     .role{KeyRole::kViewer},
     .read_only = true,
     .idempotent = true},
    {.name = "write_file",
     .description = "Write a whole text file; directories are made as needed.",
     .properties = R"j({"path": {"type": "string"}, "content": {"type": "string"}})j",
     .required = R"j(["path", "content"])j",
     .function = WriteFile,
     .role{KeyRole::kOperator},
     .destructive = true,
     .idempotent = true},
    {.name = "edit_file",
     .description = "Replace one exact piece of text in a file. oldString must occur exactly once unless replaceAll.",
     .properties = R"j({
       "path": {"type": "string"},
       "oldString": {"type": "string"},
       "newString": {"type": "string"},
       "replaceAll": {"type": "boolean"}})j",
     .required = R"j(["path", "oldString", "newString"])j",
     .function = EditFile,
     .role{KeyRole::kOperator},
     .destructive = true},
    {.name = "list_files",
     .description = "List files and directories with sizes. Does not go into .git and node_modules.",
     .properties = R"j({
       "path": {"type": "string", "description": "default: the working directory"},
       "depth": {"type": "integer", "minimum": 1, "maximum": 10, "description": "default 2"}})j",
     .required = "[]",
     .function = ListFiles,
     .role{KeyRole::kOperator},  // runs a program in the sandbox
     .read_only = true,
     .idempotent = true},
    {.name = "expose_port",
     .description = "Publish a port on which a server in the sandbox listens; returns its URL.",
     .properties = R"j({"port": {"type": "integer", "minimum": 1024, "maximum": 65535}})j",
     .required = R"j(["port"])j",
     .function = ExposePort,
     .role{KeyRole::kOperator},
     .idempotent = true},
    {.name = "snapshot",
     .description = "Keep the sandbox's files as a snapshot. Running commands end; the next call goes on from it.",
     .properties = "{}",
     .required = "[]",
     .function = TakeSnapshot,
     .role{KeyRole::kOperator},
     .destructive = true,
     .admin = true},
    {.name = "fork",
     .description = "Make a new sandbox from this one's newest snapshot.",
     .properties = R"j({"name": {"type": "string", "description": "of the new one; default: made up"}})j",
     .required = "[]",
     .function = ForkSandbox,
     .role{KeyRole::kOperator},
     .admin = true},
    {.name = "network",
     .description = "Set what the sandbox may reach; without a policy, show it and what was denied.",
     .properties = R"j({"policy": {
       "description": "\"deny-all\", \"allow-all\" or {\"allow\": [\"example.com\", \"*.example.com\"]}"}})j",
     .required = "[]",
     .function = SetNetwork,
     .role{KeyRole::kViewer},  // with a policy: kOperator
     .destructive = true,
     .idempotent = true,
     .admin = true},
};

bool Visible(const Connection& connection, const Tool& tool) {
  return connection.admin || !tool.admin;
}

}  // namespace

ToolResult TextResult(std::string_view text) {
  ToolResult result;
  result.content.emplace_back(json::object{{"type", "text"}, {"text", text}});
  return result;
}

const Tool* FindTool(const Connection& connection, std::string_view name) {
  const auto* found = std::ranges::find(kTools, name, &Tool::name);
  return found == std::end(kTools) || !Visible(connection, *found) ? nullptr : found;
}

json::array ListTools(const Connection& connection) {
  json::array out;
  for (const Tool& tool : kTools) {
    if (!Visible(connection, tool) || !sandbox::May(connection.scope.caller, tool.role.needed)) continue;
    json::object properties = json::parse(tool.properties).as_object();
    if (connection.sandbox_argument) {
      properties["sandbox"] = json::object{
          {"type", "string"}, {"description", "name of the sandbox, made when it is not there (default: your own)"}};
    }
    json::object schema{{"type", "object"},
                        {"properties", std::move(properties)},
                        {"required", json::parse(tool.required)},
                        {"additionalProperties", false}};
    json::object annotations{{"readOnlyHint", tool.read_only},
                             {"destructiveHint", tool.destructive},
                             {"idempotentHint", tool.idempotent},
                             {"openWorldHint", false}};
    // Clients that cut long results to their first part would cut off where a program's errors are.
    json::object meta{{"anthropic/maxResultSizeChars", 2 * kTextCap}};
    out.emplace_back(json::object{{"name", tool.name},
                                  {"description", tool.description},
                                  {"inputSchema", std::move(schema)},
                                  {"annotations", std::move(annotations)},
                                  {"_meta", std::move(meta)}});
  }
  return out;
}

}  // namespace sandbar::mcp
