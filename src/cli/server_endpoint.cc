#include "cli/server_endpoint.h"

#include <cstdlib>

#include "base/files.h"
#include "cli/output.h"
#include "wire/json_parse.h"
#include "wire/loopback.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Whether a URL that the user gave leads to the server of this data directory, whose token may go nowhere else.
bool LeadsTo(const std::string& url, const std::string& data) {
  auto endpoint = ReadEndpoint(data);
  if (!endpoint) return false;
  if (endpoint->url == url) return true;
  auto given = wire::ParseUrl(url), local = wire::ParseUrl(endpoint->url);
  return given && local && given->port == local->port && wire::IsLoopbackHost(given->host) &&
         wire::IsLoopbackHost(local->host);
}

}  // namespace

std::string EndpointPath(const std::string& data) {
  return data + "/endpoint.json";
}

Result<Endpoint> ReadEndpoint(const std::string& data) {
  SB_TRY(std::string text, ReadFile(EndpointPath(data)));
  SB_TRY(json::value value, wire::ParseJson(text));
  if (!value.is_object()) return Fail(Code::kProtocol, EndpointPath(data) + " is damaged");
  Endpoint endpoint{Text(value.as_object(), "url"), static_cast<int>(Number(value.as_object(), "pid"))};
  if (endpoint.url.empty()) return Fail(Code::kProtocol, EndpointPath(data) + " is damaged");
  return endpoint;
}

Result<std::string> ReadToken(const std::string& data) {
  SB_TRY(std::string token, ReadFile(data + "/token"));
  while (token.ends_with('\n')) token.pop_back();
  return token;
}

Result<ServerRef> FindServer(const Options& options) {
  ServerRef server{Environment("SANDBAR_URL"), Environment("SANDBAR_TOKEN")};
  // A data directory named on the command line wins over the environment, also when nothing runs there.
  if (options.data_given) server = {};
  if (server.url.empty()) {
    auto endpoint = ReadEndpoint(options.data);
    if (endpoint) {
      server.url = endpoint->url;
    } else if (endpoint.error().sys_errno == EACCES) {
      return FailWithFix(Code::kForbidden, "this user cannot read " + options.data,
                         "run it with sudo, or: export SANDBAR_URL=http://127.0.0.1:8787 SANDBAR_TOKEN=…   # from "
                         "`sudo sandbar token`");
    } else {
      return FailWithFix(Code::kUnavailable, "no server is running for " + options.data, "sudo ./sandbar up");
    }
  }
  while (server.url.ends_with('/')) server.url.pop_back();
  if (!server.token.empty()) return server;
  if (EnvironmentNamesServer(options) && !LeadsTo(server.url, options.data))
    return FailWithFix(Code::kForbidden,
                       "no API token for " + server.url + ": SANDBAR_URL is set and SANDBAR_TOKEN is not",
                       "export SANDBAR_TOKEN=…   # what `sudo sandbar token` prints on that server's machine");
  // Another name of it may lead to another program: on ::1 somebody else may listen. The token goes to the server's
  // own.
  if (auto endpoint = ReadEndpoint(options.data)) server.url = endpoint->url;
  auto token = ReadToken(options.data);
  if (!token)
    return FailWithFix(Code::kForbidden, "no API token: SANDBAR_TOKEN is not set and " + token.error().message,
                       "export SANDBAR_TOKEN=\"$(sudo sandbar token)\"   # on the server's machine");
  server.token = *std::move(token);
  return server;
}

bool EnvironmentNamesServer(const Options& options) {
  return !options.data_given && !Environment("SANDBAR_URL").empty();
}

bool IsLocalServer(const Options& options, const ServerRef& server) {
  auto endpoint = ReadEndpoint(options.data);
  auto token = ReadToken(options.data);
  return endpoint && token && endpoint->url == server.url && *token == server.token;
}

}  // namespace sandbar::cli
