// Recognises requests of E2B clients, and of programs with an unset variable, and says so instead of "not found". Pure
// functions, any thread.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "http/server.h"

namespace sandbar::api {

// kUnsupported for what only clients of E2B send.
Result<> CheckProtocol(const http::HttpRequest& request);

// The hint when a part of the path is text such as "undefined", which programs make of an unset value; else empty.
std::string UnsetValueHint(const std::map<std::string, std::string>& params);

}  // namespace sandbar::api
