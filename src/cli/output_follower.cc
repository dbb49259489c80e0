#include "cli/output_follower.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "wire/json_parse.h"
#include "wire/url.h"

namespace sandbar::cli {

using wire::OutputKind;

std::string CommandPath(const std::string& session, const std::string& command) {
  return "/x/v1/sessions/" + wire::EncodeComponent(session) + "/commands/" + wire::EncodeComponent(command);
}

std::optional<int> ExitCodeIn(const json::object& command) {
  const json::value* code = command.if_contains("exitCode");
  if (code == nullptr || !code->is_int64()) return std::nullopt;
  return static_cast<int>(code->as_int64());
}

Result<std::optional<json::object>> OutputFollower::TakeCommand(const std::string& text) {
  SB_TRY(json::value value, wire::ParseJson(text));
  if (!value.is_object()) return Fail(Code::kProtocol, "the server's word about the command is no JSON object");
  json::object command = std::move(value.as_object());
  // The first frame of a connection says how the command is now; its output still follows.
  if (std::exchange(first_frame_, false)) {
    id_ = Text(command, "id");
    if (std::exchange(started_, true)) return std::nullopt;
    SB_TRYV(sink_->Command(command));
    if (on_started) {
      SB_TRYV(on_started(command));
    }
    return std::nullopt;
  }
  if (!ExitCodeIn(command)) return std::nullopt;
  SB_TRYV(sink_->Command(command));
  return command;
}

Result<std::optional<json::object>> OutputFollower::Take(const wire::OutputFrames::Frame& frame) {
  switch (frame.kind) {
    case OutputKind::kKeepAlive:
      return std::nullopt;
    case OutputKind::kStdout:
    case OutputKind::kStderr:
      SB_TRYV(sink_->Bytes(frame.kind, frame.payload));
      position_ += frame.payload.size();
      return std::nullopt;
    case OutputKind::kGap:
      if (!quiet_gaps) {
        SB_TRYV(sink_->Gap(frame.missing));
      }
      position_ += frame.missing;
      return std::nullopt;
    case OutputKind::kCommand:
      return TakeCommand(frame.payload);
    case OutputKind::kError:
      break;
  }
  SB_TRY(json::value value, wire::ParseJson(frame.payload));
  const json::object none;
  const json::object& error = value.is_object() ? value.as_object() : none;
  const bool again = Text(error, "code") == "service_unavailable";
  return Fail(again ? Code::kUnavailable : Code::kStopped, Printable(Text(error, "message")));
}

Task<std::optional<json::object>> OutputFollower::Read(http::ClientResponse* response) {
  wire::OutputFrames frames;
  first_frame_ = true;
  for (;;) {
    SB_CO_TRY(std::string piece, co_await response->Read());
    if (piece.empty()) co_return std::nullopt;
    SB_CO_TRYV(frames.Feed(piece));
    while (auto frame = frames.Next()) {
      SB_CO_TRY(auto ended, Take(*frame));
      if (ended) co_return ended;
      retry_.Worked();
    }
  }
}

Task<std::unique_ptr<http::ClientResponse>> OutputFollower::Open() {
  const std::string path =
      fmt::format("{}/output?since={}{}", CommandPath(session_, id_), position_, hold ? "&hold=true" : "");
  http::ClientRequest request = api_->Request("GET", path, "");
  co_return co_await api_->Open(std::move(request));
}

// The stream is not to be had any more. The server may still know how the command ended.
Task<json::object> OutputFollower::HowItEnded(Error why) {
  if (why.code != Code::kStopped && why.code != Code::kNotFound) co_return std::unexpected(std::move(why));
  std::string path = SessionPath(session_) + "/cmd/" + wire::EncodeComponent(id_);
  auto got = co_await api_->Call("GET", std::move(path), std::nullopt);
  if (!got || !ExitCodeIn(Object(*got, "command"))) co_return std::unexpected(std::move(why));
  json::object command = Object(*got, "command");
  SB_CO_TRYV(sink_->Command(command));
  co_return command;
}

Task<json::object> OutputFollower::Follow(std::unique_ptr<http::ClientResponse> answer) {
  Error why;
  for (;;) {
    if (answer) {
      auto read = co_await Read(answer.get());
      if (read && *read) co_return **std::move(read);
      why = {Code::kClosed, "the output ended before the command did: the sandbox or server is gone"};
      if (!read) why = std::move(read).error();
      answer.reset();
    }
    if (id_.empty()) co_return std::unexpected(std::move(why));
    if (!RetryClock::MayPass(why)) co_return co_await HowItEnded(std::move(why));
    auto paused = co_await retry_.Pause(why);
    if (!paused && paused.error().code == Code::kCancelled) co_return std::unexpected(std::move(paused).error());
    if (!paused)
      co_return Fail(Code::kUnavailable, fmt::format("the connection to the server broke and did not come back in {} s",
                                                     kRetryFor.count()));
    auto again = co_await Open();
    if (again) {
      answer = *std::move(again);
      if (on_reconnected) on_reconnected();
    } else {
      why = std::move(again).error();
    }
  }
}

Task<json::object> OutputFollower::Join(std::string id) {
  id_ = std::move(id);
  SB_CO_TRY(auto answer, co_await Open());
  co_return co_await Follow(std::move(answer));
}

}  // namespace sandbar::cli
