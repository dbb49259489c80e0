// The tools of a sandbox as the server offers them to every MCP client (POST /mcp/s/{name}): one implementation for
// all. Single loop. What a tool returns comes from the sandbox: it is bounded here and never interpreted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/api_client.h"
#include "llm/model.h"

namespace sandbar::llm {

class ToolBox {
 public:
  virtual ~ToolBox() = default;
  virtual Task<std::vector<ToolSpec>> List() = 0;
  // A call that the tool itself refuses (unknown name, wrong input) is a result with is_error: the model can mend it.
  // An Error means that the sandbox or the server is gone.
  virtual Task<ToolResult> Call(ToolCall call) = 0;
};

// `api` outlives it.
std::unique_ptr<ToolBox> MakeMcpTools(client::ApiClient* api, std::string sandbox);

// The names that articles and other products teach -> ours: execute_command is run_command.
std::string ToolName(const std::string& name);
// N of a result that begins with "exit code N".
std::optional<int> ExitCodeOf(std::string_view text);
// The `result` of a tools/call.
Result<ToolResult> ReadToolResult(const json::object& result);

}  // namespace sandbar::llm
