// Follows the output of one command to its end. When the connection breaks, it continues where it was; the command
// waits for it meanwhile, so nothing is lost. Single loop.
//
//   OutputFollower follower(api, session, &sink);
//   follower.on_started = …;
//   SB_CO_TRY(json::object command, co_await follower.Follow(std::move(answer)));     // with its exit code
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/output_sink.h"
#include "cli/retry_clock.h"
#include "cli/server_endpoint.h"

namespace sandbar::cli {

// Of the native API.
std::string CommandPath(const std::string& session, const std::string& command);
// Empty while it runs.
std::optional<int> ExitCodeIn(const json::object& command);

class OutputFollower {
 public:
  // `api` and `sink` outlive it.
  OutputFollower(ApiClient* api, std::string session, OutputSink* sink)
      : api_(api), session_(std::move(session)), sink_(sink) {}

  std::function<Result<>(const json::object& command)> on_started;
  std::function<void()> on_reconnected;
  // Several may follow a command with `hold` false; those with true slow it down to their own speed.
  bool hold = true;
  // Parts that are missing are what a terminal forgets by itself: nobody is told.
  bool quiet_gaps = false;

  // `answer`: to the request that started the command. The command as it was when it had ended.
  Task<json::object> Follow(std::unique_ptr<http::ClientResponse> answer);
  // Joins a command that runs.
  Task<json::object> Join(std::string id);
  const std::string& id() const { return id_; }

 private:
  Task<std::unique_ptr<http::ClientResponse>> Open();
  Task<std::optional<json::object>> Read(http::ClientResponse* response);
  Result<std::optional<json::object>> Take(const wire::OutputFrames::Frame& frame);
  Result<std::optional<json::object>> TakeCommand(const std::string& text);
  Task<json::object> HowItEnded(Error why);

  ApiClient* api_;
  std::string session_;
  OutputSink* sink_;
  std::string id_;
  uint64_t position_ = 0;
  bool started_ = false;
  bool first_frame_ = true;  // of this connection
  RetryClock retry_;
};

}  // namespace sandbar::cli
