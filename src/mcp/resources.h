// Files of a sandbox as MCP resources: what links in results lead to. sandbar://<sandbox>/<path>, read as the sandbox's
// user. Nothing is listed: which files there are, the tools say. Single loop.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "mcp/tools.h"

namespace sandbar::mcp {

// A link to what run_code reported as an artifact: {path, size, mime}.
json::object LinkTo(std::string_view sandbox, const json::object& artifact);

json::object ListResources();
json::object ListResourceTemplates();
// {contents: […]}; kBadRequest for what is no such URI, or one of another sandbox than the connection's.
Task<json::object> ReadResource(const Connection* connection, std::string uri);

}  // namespace sandbar::mcp
