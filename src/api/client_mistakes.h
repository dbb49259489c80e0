// Requests that come from a client of another kind, or from a program with an unset variable: one sentence that says
// so is worth more than "not found". Pure functions, any thread.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "http/server.h"

namespace sandbar::api {

// kUnsupported for what only clients of E2B send.
Result<> CheckProtocol(const http::HttpRequest& request);

// A hint for "not found" when a part of the path is what a program makes of a value that is not there; else empty.
std::string UnsetValueHint(const std::map<std::string, std::string>& params);

}  // namespace sandbar::api
