// Where the server is, and the client that talks to it (client/api_client.h).
#pragma once

#include <string>

#include "cli/options.h"
#include "client/api_client.h"

namespace sandbar::cli {

namespace json = boost::json;

using client::ApiClient;
using client::kProject;
using client::NdjsonReader;
using client::Number;
using client::Object;
using client::ServerRef;
using client::Text;

// SANDBAR_URL + SANDBAR_TOKEN, else what the server wrote into the data directory. kUnavailable: none is running there;
// kForbidden: there may be one, but this user cannot read its token. Both say what to do.
Result<ServerRef> FindServer(const Options& options);

// Whether SANDBAR_URL says which server to use.
bool EnvironmentNamesServer(const Options& options);
// Whether `server` is the server of the data directory, with that directory's own token. Then `sandbar env` can use
// that server's key and the preload beside this program, and need not ask the server.
bool IsLocalServer(const Options& options, const ServerRef& server);

// The endpoint file of a data directory: written by the server when it listens, removed when it stops.
struct Endpoint {
  std::string url;
  int pid = 0;
};
std::string EndpointPath(const std::string& data);
Result<Endpoint> ReadEndpoint(const std::string& data);
// The API token of a data directory.
Result<std::string> ReadToken(const std::string& data);

}  // namespace sandbar::cli
