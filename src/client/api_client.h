// The HTTP API as cli/, llm/ and evals/ use it: JSON calls and NDJSON streams.
// Single loop; one client per invocation. Errors carry the server's own message.
//
//   ApiClient api(ex, {"http://127.0.0.1:8787", token});
//   json::object got = *co_await api.Call("GET", "/v2/sandboxes/demo", std::nullopt);
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "http/byte_stream.h"
#include "http/client.h"

namespace sandbar::client {

namespace json = boost::json;

inline constexpr char kTeam[] = "team_sandbar";
inline constexpr char kProject[] = "prj_sandbar";

struct ServerRef {
  std::string url;  // no trailing slash
  std::string token;
};

class ApiClient {
 public:
  ApiClient(asio::any_io_executor ex, ServerRef server);

  const std::string& url() const { return server_.url; }
  const ServerRef& server() const { return server_; }
  // `path` may have a query; team and project are added. The answer must be a JSON object with a 2xx status.
  Task<json::object> Call(std::string method, std::string path, std::optional<json::value> body);
  // An answer to be read piece by piece; a non-2xx one is turned into an Error here.
  Task<std::unique_ptr<http::ClientResponse>> Open(http::ClientRequest request);
  Task<std::unique_ptr<http::ClientResponse>> Upload(http::ClientRequest request, http::BodyProducer body);
  // A connection whose bytes are ours after the server agreed to `protocol`.
  Task<std::unique_ptr<http::ByteStream>> Upgrade(http::ClientRequest request, std::string protocol);
  // A request with url, token and content type filled in.
  http::ClientRequest Request(const std::string& method, const std::string& path, std::string body) const;
  // True when GET /health answers 200.
  Task<bool> Healthy();

 private:
  Task<std::unique_ptr<http::ClientResponse>> Check(std::unique_ptr<http::ClientResponse> response);
  Error Explain(Error error) const;

  ServerRef server_;
  std::unique_ptr<http::HttpClient> http_;
};

// Lines of an NDJSON answer, parsed; nullopt at its proper end. Empty lines are keep-alives.
class NdjsonReader {
 public:
  explicit NdjsonReader(http::ClientResponse* response) : response_(response) {}
  Task<std::optional<json::object>> Next();

 private:
  http::ClientResponse* response_;  // outlives the reader
  std::string buffer_;
  size_t start_ = 0;
  bool end_ = false;
};

// Convenience over parsed answers: empty or 0 when absent or of another type.
std::string Text(const json::object& object, std::string_view key);
int64_t Number(const json::object& object, std::string_view key);
const json::object& Object(const json::object& object, std::string_view key);

}  // namespace sandbar::client
