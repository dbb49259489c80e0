#include "llm/claude_session.h"

#include <algorithm>

#include "wire/json_parse.h"
#include "wire/sse.h"

namespace sandbar::llm {
namespace {

using client::Object;
using client::Text;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The service sends pings; a stream that is silent for longer is dead.
constexpr auto kSilence = std::chrono::minutes(5);
constexpr milliseconds kFirstWait{500};
constexpr milliseconds kLongestWait{10'000};

bool IsCall(std::string_view type) {
  return type == "agent.tool_use" || type == "agent.custom_tool_use";
}

bool EndsTurn(const json::object& event) {
  return Text(event, "type") == "session.status_idle" &&
         Text(Object(event, "stop_reason"), "type") != "requires_action";
}

json::object ResultEvent(const std::string& id, const ToolResult& result) {
  json::array content;
  for (const Part& part : result.parts) content.push_back(json::object{{"type", "text"}, {"text", part.text}});
  return {{"type", "user.tool_result"},
          {"tool_use_id", id},
          {"is_error", result.is_error},
          {"content", std::move(content)}};
}

}  // namespace

Task<ClaudeSession::End> ClaudeSession::Run() {
  for (milliseconds wait = kFirstWait;; wait = std::min(wait * 2, kLongestWait)) {
    const size_t before = seen_.size();
    auto end = co_await Attached();
    if (!end && end.error().code != Code::kUnavailable) co_return std::unexpected(std::move(end).error());
    if (end && *end) co_return **end;
    if (!end) say_("the event stream broke: " + end.error().message);
    if (seen_.size() > before) wait = kFirstWait;
    SB_CO_TRYV(co_await Sleep(wait));
  }
}

// nullopt: the stream ended, attach again.
Task<std::optional<ClaudeSession::End>> ClaudeSession::Attached() {
  Work work = work_;
  SB_CO_TRY(auto stream, co_await claude_->Stream(std::move(work)));
  SB_CO_TRYV(co_await Reconcile());
  // It may have ended while nobody listened.
  if (terminated_) co_return End::kTerminated;
  co_return co_await Follow(stream.get());
}

// Records what is known about a call without acting on it.
void ClaudeSession::Note(const json::object& event) {
  const std::string type = Text(event, "type");
  if (type == "session.status_terminated" || type == "session.deleted") terminated_ = true;
  if (type == "user.tool_result") answered_.insert(Text(event, "tool_use_id"));
  if (type == "user.custom_tool_result") answered_.insert(Text(event, "custom_tool_use_id"));
  if (type == "user.tool_confirmation") {
    verdicts_[Text(event, "tool_use_id")] = Text(event, "result");
  } else {
    idle_since_.reset();
    if (EndsTurn(event)) idle_since_ = Clock::now();
  }
}

// The whole history first: a call whose answer comes later in it is not run again.
Task<> ClaudeSession::Reconcile() {
  Work work = work_;
  SB_CO_TRY(std::vector<json::object> events, co_await claude_->Events(std::move(work)));
  for (const json::object& event : events) Note(event);
  const auto idle = idle_since_;
  for (json::object& event : events) {
    if (!IsCall(Text(event, "type")) || answered_.contains(Text(event, "id"))) continue;
    seen_.insert(Text(event, "id"));
    SB_CO_TRYV(co_await Route(std::move(event)));
  }
  idle_since_ = idle;
  co_return Result<>{};
}

Task<std::optional<ClaudeSession::End>> ClaudeSession::Follow(http::ClientResponse* stream) {
  wire::SseParser sse(4 << 20);
  while (true) {
    // A call that waits for somebody's word keeps an idle session open.
    const bool idle = idle_since_ && !Waiting();
    const auto left = idle ? *idle_since_ + limits_.max_idle - Clock::now() : Clock::duration(kSilence);
    if (left <= Clock::duration::zero()) co_return End::kIdle;
    Task<std::string> reading = stream->Read();
    auto piece = co_await WithTimeout(std::move(reading), left);
    if (!piece && piece.error().code == Code::kTimeout && idle) co_return End::kIdle;
    if (!piece && piece.error().code == Code::kCancelled) co_return std::unexpected(std::move(piece).error());
    if (!piece) co_return Fail(Code::kUnavailable, piece.error().message);
    if (piece->empty()) co_return std::nullopt;
    auto events = sse.Feed(*piece);
    if (!events) co_return Fail(Code::kUnavailable, events.error().message);
    for (const wire::SseEvent& event : *events) {
      auto value = wire::ParseJson(event.data);
      if (!value || !value->is_object()) continue;
      json::object object = std::move(value->get_object());
      SB_CO_TRY(std::optional<End> end, co_await Handle(std::move(object)));
      if (end) co_return end;
    }
  }
}

Task<std::optional<ClaudeSession::End>> ClaudeSession::Handle(json::object event) {
  Note(event);
  const std::string type = Text(event, "type");
  const std::string id = Text(event, "id");
  if (terminated_) co_return End::kTerminated;
  if (IsCall(type) && seen_.insert(id).second) {
    SB_CO_TRYV(co_await Route(std::move(event)));
  } else if (type == "user.tool_confirmation") {
    auto held = held_.extract(Text(event, "tool_use_id"));
    if (held) SB_CO_TRYV(co_await Route(std::move(held.mapped())));
  }
  co_return std::nullopt;
}

Task<> ClaudeSession::Route(json::object call) {
  const std::string id = Text(call, "id");
  const std::string name = Text(call, "name");
  if (answered_.contains(id) || Text(call, "type") != "agent.tool_use" || !ClaudeTools::Has(name)) co_return Result<>{};
  const json::value* given = call.if_contains("evaluated_permission");
  const std::string permission = given == nullptr ? "allow" : Text(call, "evaluated_permission");
  auto verdict = verdicts_.find(id);
  const bool decided = permission == "deny" || verdict != verdicts_.end();
  if (!decided && permission != "allow") {
    say_(name + ": waits for a confirmation");
    held_.insert_or_assign(id, std::move(call));
    co_return Result<>{};
  }
  held_.erase(id);
  if (permission == "deny" || (verdict != verdicts_.end() && verdict->second != "allow")) {
    say_(name + ": denied, not run");
    answered_.insert(id);
    co_return Result<>{};
  }
  co_return co_await Execute(std::move(call));
}

Task<> ClaudeSession::Execute(json::object call) {
  const std::string id = Text(call, "id");
  ToolCall wanted{id, Text(call, "name"), Object(call, "input")};
  const std::string name = wanted.name;
  const auto started = Clock::now();
  SB_CO_TRY(ToolResult result, co_await tools_->Call(std::move(wanted)));
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - started).count();
  say_(name + (result.is_error ? ": error, " : ": ok, ") + std::to_string(took) + " ms");
  json::object event = ResultEvent(id, result);
  SB_CO_TRYV(co_await Post(std::move(event)));
  answered_.insert(id);
  // It took time, and the turn goes on.
  idle_since_.reset();
  co_return Result<>{};
}

Task<> ClaudeSession::Post(json::object result) {
  const auto until = Clock::now() + limits_.send_window;
  for (milliseconds wait = kFirstWait;; wait = std::min(wait * 2, kLongestWait)) {
    Work work = work_;
    json::object copy = result;
    auto sent = co_await claude_->SendResult(std::move(work), std::move(copy));
    if (sent || sent.error().code != Code::kUnavailable || Clock::now() > until) co_return sent;
    say_("the result could not be sent yet: " + sent.error().message);
    SB_CO_TRYV(co_await Sleep(wait));
  }
}

}  // namespace sandbar::llm
