// The one table from Error codes to HTTP answers: status, the protocol's error code and the body
// {"error":{"code","message"},"message"}. Pure functions, any thread.
//
// Clients retry network errors, 429 and every 5xx, POSTs included: whatever will fail again the same way is a 4xx, and
// 5xx is left to real faults of the server. Texts of such faults (paths, errno) go to the log under a reference, never
// to the caller.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/server.h"

namespace sandbar::api {

struct ErrorAnswer {
  int status = 500;
  std::string_view code;
};

ErrorAnswer AnswerFor(Code code);
// The same as AnswerFor, but std::nullopt for a number that is no Code.
std::optional<ErrorAnswer> FindAnswer(Code code);

// What the caller may read: the error's message, or for a fault a reference to the log line that has it.
std::string PublicMessage(const Error& error);

// `reason`: what kind of file error it is.
std::string ErrorBody(std::string_view code, std::string_view message, std::string_view reason = {});

// A complete answer, with the headers that every answer carries and those that its status asks for.
http::HttpResponse ErrorResponse(const Error& error);

// Headers of every answer: never sniffed, never cached, never a document that can do anything on our origin.
std::vector<http::Header> SecurityHeaders();

}  // namespace sandbar::api
