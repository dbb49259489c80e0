#include "llm/loop.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ids.h"

namespace sandbar::llm {
namespace {

// Beyond this the conversation would not fit any model.
constexpr size_t kMaxCallsPerStep = 32;
constexpr int64_t kMaxReplyTokens = 8192;

json::array ContentJson(const ToolResult& result) {
  json::array out;
  for (const Part& part : result.parts) {
    if (part.mime.empty()) {
      out.push_back(json::object{{"type", "text"}, {"text", part.text}});
    } else {
      out.push_back(json::object{{"type", "image"}, {"mimeType", part.mime}, {"data", part.data}});
    }
  }
  return out;
}

size_t Size(const ToolResult& result) {
  size_t n = 0;
  for (const Part& part : result.parts) n += part.text.size() + part.data.size();
  return n;
}

const char* Name(Stop stop) {
  switch (stop) {
    case Stop::kEnd:
      return "end";
    case Stop::kTools:
      return "tools";
    case Stop::kLength:
      return "length";
    case Stop::kRefused:
      return "refused";
    case Stop::kPaused:
      return "paused";
  }
  return "end";
}

// The caller's settings are wrong, not the run.
bool IsConfiguration(Code code) {
  return code == Code::kUnauthenticated || code == Code::kForbidden || code == Code::kNotFound ||
         code == Code::kBadRequest;
}

}  // namespace

const char* Name(Status status) {
  switch (status) {
    case Status::kAnswered:
      return "answered";
    case Status::kFailed:
      return "failed";
    case Status::kConfiguration:
      return "configuration";
    case Status::kLimit:
      return "limit";
    case Status::kInterrupted:
      return "interrupted";
  }
  return "failed";
}

int ExitCode(Status status) {
  switch (status) {
    case Status::kAnswered:
      return 0;
    case Status::kFailed:
      return 1;
    case Status::kConfiguration:
      return 2;
    case Status::kLimit:
      return 3;
    case Status::kInterrupted:
      return 130;
  }
  return 1;
}

json::object ToJson(const Outcome& outcome) {
  json::array calls;
  for (const CalledTool& call : outcome.calls) {
    json::object item{{"name", call.name}, {"input", call.input}, {"isError", call.is_error}};
    if (call.exit_code) item["exitCode"] = *call.exit_code;
    calls.push_back(std::move(item));
  }
  return {{"status", Name(outcome.status)},
          {"reason", outcome.reason},
          {"answer", outcome.answer},
          {"steps", outcome.steps},
          {"usage", json::object{{"input", outcome.usage.input}, {"output", outcome.usage.output}}},
          {"ms", outcome.ms},
          {"toolCalls", std::move(calls)}};
}

ToolLoop::ToolLoop(Model* model, ToolBox* tools, Limits limits, Record record)
    : model_(model), tools_(tools), limits_(limits), record_(std::move(record)), started_(NowMs()) {}

void ToolLoop::End(Status status, std::string reason) {
  if (ended_ && outcome_.status != Status::kAnswered) return;
  ended_ = true;
  outcome_.status = status;
  outcome_.reason = std::move(reason);
  outcome_.ms = NowMs() - started_;
  if (status != Status::kAnswered) outcome_.answer.clear();
}

Task<> ToolLoop::Go(std::string system, std::string prompt) {
  conversation_.system = std::move(system);
  conversation_.prompt = std::move(prompt);
  Task<> work = Work();
  auto done = co_await WithTimeout(std::move(work), std::chrono::milliseconds(limits_.timeout_ms));
  if (!done && done.error().code == Code::kCancelled) co_return done;
  if (!done) Settle(std::move(done).error());
  co_return Result<>{};
}

void ToolLoop::Settle(Error error) {
  // Deadlines inside the loop come out as failures with a name; this one is ours.
  if (error.code == Code::kTimeout) {
    End(Status::kLimit, fmt::format("time limit reached ({} s); the task is not finished", limits_.timeout_ms / 1000));
  } else {
    End(IsConfiguration(error.code) ? Status::kConfiguration : Status::kFailed, std::move(error.message));
  }
}

Task<> ToolLoop::Work() {
  auto tools = co_await tools_->List();
  if (!tools && tools.error().code == Code::kCancelled) co_return std::unexpected(std::move(tools).error());
  if (!tools) co_return Fail(Code::kUnavailable, "the sandbox's tools: " + tools.error().message);
  conversation_.tools = std::move(*tools);
  while (!ended_) {
    SB_CO_TRY(bool more, co_await Step());
    if (!more) break;
  }
  co_return Result<>{};
}

// One reply and its tools; false when the run has ended.
Task<bool> ToolLoop::Step() {
  const int64_t left = limits_.max_tokens == 0 ? kMaxReplyTokens : limits_.max_tokens - outcome_.usage.total();
  conversation_.max_reply_tokens = std::clamp<int64_t>(left, 1, kMaxReplyTokens);
  const int step = outcome_.steps + 1;
  const int64_t asked = NowMs();
  Record tell = [this, step](json::object event) {
    event["step"] = step;
    record_(std::move(event));
  };
  SB_CO_TRY(Reply reply, co_await model_->Next(&conversation_, std::move(tell)));
  outcome_.steps = step;
  outcome_.usage.input += reply.usage.input;
  outcome_.usage.output += reply.usage.output;
  json::array calls;
  for (const ToolCall& call : reply.calls)
    calls.push_back(json::object{{"id", call.id}, {"name", call.name}, {"input", call.input}});
  record_({{"type", "reply"},
           {"step", step},
           {"text", reply.text},
           {"toolCalls", std::move(calls)},
           {"stop", Name(reply.stop)},
           {"usage", json::object{{"input", reply.usage.input}, {"output", reply.usage.output}}},
           {"ms", NowMs() - asked}});
  if (Settles(reply)) co_return false;
  Turn turn;
  turn.reply = std::move(reply);
  SB_CO_TRYV(co_await CallTools(&turn));
  conversation_.turns.push_back(std::move(turn));
  co_return true;
}

// Whether this reply ends the run. A model that wants to go on at a limit has not answered.
bool ToolLoop::Settles(const Reply& reply) {
  if (reply.stop == Stop::kRefused) {
    End(Status::kFailed, "the model refused");
  } else if (reply.stop == Stop::kLength) {
    End(Status::kLimit, "the model's reply was cut at its token limit; the task is not finished");
  } else if (reply.calls.empty() && reply.stop != Stop::kPaused) {
    outcome_.answer = reply.text;
    if (reply.text.empty()) {
      End(Status::kFailed, "the model ended without an answer");
    } else {
      End(Status::kAnswered, fmt::format("answered in {} step{}", outcome_.steps, outcome_.steps == 1 ? "" : "s"));
    }
  } else if (outcome_.steps >= limits_.max_steps) {
    End(Status::kLimit,
        fmt::format("step limit reached (--max-steps {}); the task is not finished", limits_.max_steps));
  } else if (limits_.max_tokens > 0 && outcome_.usage.total() >= limits_.max_tokens) {
    End(Status::kLimit, fmt::format("token limit reached ({} of --max-tokens {}); the task is not finished",
                                    outcome_.usage.total(), limits_.max_tokens));
  } else if (reply.calls.size() > kMaxCallsPerStep) {
    End(Status::kFailed, fmt::format("the model made {} tool calls at once", reply.calls.size()));
  }
  return ended_;
}

Task<> ToolLoop::CallTools(Turn* turn) {
  for (const ToolCall& call : turn->reply.calls) {
    const int64_t began = NowMs();
    record_({{"type", "call"}, {"step", outcome_.steps}, {"id", call.id}, {"name", call.name}, {"input", call.input}});
    ToolCall copy = call;
    auto result = co_await tools_->Call(std::move(copy));
    if (!result && result.error().code == Code::kCancelled) co_return std::unexpected(std::move(result).error());
    // Never kNotFound and the like: that would read as the caller's configuration.
    if (!result) co_return Fail(Code::kUnavailable, "tool " + call.name + ": " + result.error().message);
    json::object event{{"type", "tool"},        {"step", outcome_.steps},         {"id", call.id},
                       {"name", call.name},     {"isError", result->is_error},    {"bytes", Size(*result)},
                       {"ms", NowMs() - began}, {"content", ContentJson(*result)}};
    if (result->exit_code) event["exitCode"] = *result->exit_code;
    record_(std::move(event));
    outcome_.calls.push_back({call.name, call.input, result->is_error, result->exit_code});
    turn->results.push_back(std::move(*result));
  }
  co_return Result<>{};
}

}  // namespace sandbar::llm
