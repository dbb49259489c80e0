// The eight calls of Claude's managed agents that a worker of a self-hosted environment makes. Single loop.
// Keys are sent to that service and nowhere else; they are cut out of every message that comes back.
//
//   ClaudeApi claude(ex, "https://api.anthropic.com", key);
//   SB_CO_TRY(std::optional<Work> work, co_await claude.Poll("env_1", "worker-1"));
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "http/client.h"

namespace sandbar::llm {

namespace json = boost::json;

struct Work {
  std::string id, environment, type, session;
  std::string token;  // of this item alone; empty: the environment's key does it
};

struct Beat {
  std::string last;
  int64_t ttl_ms = 0;
  bool over = false;  // the service wants it to end, or gave the lease away
};

class ClaudeApi {
 public:
  ClaudeApi(const asio::any_io_executor& ex, std::string base, std::string key);

  // Errors of all calls: kUnavailable may pass by itself, kConflict is a lease that is lost, others are for good.
  Task<std::optional<Work>> Poll(std::string environment, std::string worker);
  Task<> Acknowledge(Work work);
  Task<Beat> Heartbeat(Work work, std::string last);
  Task<> Stop(Work work);
  Task<> GetSession(Work work);
  Task<std::vector<json::object>> Events(Work work);
  Task<std::unique_ptr<http::ClientResponse>> Stream(Work work);
  Task<> SendResult(Work work, json::object event);

 private:
  Task<std::unique_ptr<http::ClientResponse>> Open(http::ClientRequest request, std::string token);
  Task<json::object> Call(http::ClientRequest request, std::string token);
  http::ClientRequest Request(std::string method, const std::string& path, std::string query = "") const;

  std::unique_ptr<http::HttpClient> http_;
  std::string base_, key_;
};

// The sessions token in a work item's secret (base64 of JSON); empty when there is none. Exposed for the test.
std::string TokenOfSecret(std::string_view secret);

}  // namespace sandbar::llm
