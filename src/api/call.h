// One request on its way through a handler: what was matched, who asks, and how to answer. Lives in the coroutine frame
// of Api::Handle; handlers get a pointer that is valid until they return. Loop thread.
#pragma once

#include <boost/json/fwd.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "api/auth.h"
#include "api/credential.h"
#include "api/vercel/shapes.h"
#include "async/task.h"
#include "http/server.h"
#include "images/images.h"
#include "sandbox/roles.h"
#include "wire/url.h"

namespace sandbar::mcp {
class Cells;
}

namespace sandbar::api {

struct ApiConfig;
class CreateAnswers;
class DeviceLogins;
class FreshShells;
class McpCalls;
class Shares;
class TerminalTickets;

inline constexpr size_t kMaxJsonBody = 4 << 20;

struct Call {
  http::HttpExchange* exchange = nullptr;
  const sandbox::Roles* domain = nullptr;
  images::Catalog* catalog = nullptr;
  const ApiConfig* config = nullptr;
  CreateAnswers* create_answers = nullptr;
  FreshShells* fresh_shells = nullptr;
  TerminalTickets* terminal_tickets = nullptr;
  DeviceLogins* device_logins = nullptr;
  Shares* shares = nullptr;
  mcp::Cells* cells = nullptr;
  McpCalls* mcp_calls = nullptr;
  std::string base_url;  // of this server, without a slash at its end
  PreviewUrls preview_urls;

  std::map<std::string, std::string> params;
  wire::Query query;
  int version = 0;         // the N of /vN
  bool first_use = false;  // of a sandbox that was made for an interactive shell
  // Absent on open routes. `exchange` ends streams with it (expiring_exchange.h).
  std::optional<Credential> credential;
  // Ends a stream whose credential has ended, given the reason; empty: the default error of its format.
  std::function<std::string(std::string_view why)> last_words;
  Wanted wanted;
  sandbox::Scope scope;  // with the caller in it

  bool v1() const { return version == 1; }
  const http::HttpRequest& request() const { return exchange->request(); }
  const std::string& Param(std::string_view name) const;
  bool Flag(std::string_view name) const;  // ?name=true
  // ?name=12; 0 without it. kBadRequest names the field.
  Result<uint64_t> Number(std::string_view name) const;

  const sandbox::Principal& caller() const { return scope.caller; }
  // Whose places (shares.h) the call takes. The operator's own calls have a share of their own, whatever project they
  // name.
  std::string ShareName() const { return scope.any_project ? "*" : scope.team + "/" + scope.project; }

  // For a call that does more than its route says. kForbidden when the caller's role is less.
  Result<> Need(sandbox::KeyRole role) const { return sandbox::CheckRole(scope.caller, role); }
  // A project named by the body; the same rules as for one in the query.
  Result<> UseProject(const std::string& project);

  // The JSON body's text; kTooLarge past kMaxJsonBody.
  Task<std::string> Body();
  Task<> Reply(boost::json::object body, int status = 200);
  Task<> ReplyText(std::string text, std::string content_type);
  // Head of a streamed answer, with the headers that every answer has.
  Task<> StartStream(std::string content_type);
  // Streams all bytes. Bytes that cannot be read at all are an error answer, and a part is never taken for the whole.
  Task<> ReplyBytes(engine::ByteSource* source);
};

}  // namespace sandbar::api
