// One MCP message in, its answer out: initialize, discover, ping, tools. Knows no transport; keeps nothing between
// messages. Single loop.
//
//   json::object answer = co_await Answer(&connection, std::move(message), &progress, &waited);
//   // the client went away meanwhile, and the task was cancelled:
//   co_await Abandon(&connection, waited);
#pragma once

#include <boost/json/object.hpp>

#include "mcp/protocol.h"
#include "mcp/tools.h"

namespace sandbar::mcp {

// kForbidden when the request calls a tool that the caller's role does not allow. Answer() asks too.
Result<> CheckAllowed(const Connection& connection, const Message& message);

// The answer to a valid request. `progress` may be null. Both pointers outlive the task.
asio::awaitable<json::object> Answer(const Connection* connection, Message message, Progress* progress, Waited* waited);

// Ends the command that a cancelled call waited for.
Task<> Abandon(const Connection* connection, Waited waited);

}  // namespace sandbar::mcp
