#include "llm/script.h"

#include <re2/re2.h>

#include <boost/describe.hpp>

#include "wire/json_decode.h"

namespace sandbar::llm {

// As written in a file; `tool` and `input` are short for one element of `tools`.
struct CallBody {
  std::string tool;
  std::map<std::string, json::value> input;
};
BOOST_DESCRIBE_STRUCT(CallBody, (), (tool, input))

struct UsageBody {
  int64_t input = 0, output = 0;
};
BOOST_DESCRIBE_STRUCT(UsageBody, (), (input, output))

struct StepBody {
  std::optional<std::string> if_, text, tool;
  std::map<std::string, json::value> input;
  std::vector<CallBody> tools;
  std::vector<int> trials;
  std::optional<int> repeat;
  std::optional<UsageBody> usage;
  void Check(wire::JsonIssues& issues) const {
    if (!text && !tool && tools.empty()) issues.Add("", "needs `text`, `tool` or `tools`");
    if (!tool && !input.empty()) issues.Add("input", "belongs to a `tool`");
    issues.Range("repeat", repeat, 1, 100'000);
    if (if_ && !re2::RE2(*if_, re2::RE2::Quiet).ok()) issues.Add("if", "is no regular expression (RE2)");
  }
};
BOOST_DESCRIBE_STRUCT(StepBody, (), (if_, text, tool, input, tools, trials, repeat, usage))

namespace {

constexpr int kMaxGroups = 9;

json::object ToObject(const std::map<std::string, json::value>& map) {
  json::object out;
  for (const auto& [key, value] : map) out[key] = value;
  return out;
}

json::value FillAll(const json::value& value, const std::function<std::string(std::string_view)>& fill) {
  if (value.is_string()) return json::value(fill(value.as_string()));
  if (value.is_array()) {
    json::array out;
    for (const auto& item : value.as_array()) out.push_back(FillAll(item, fill));
    return out;
  }
  if (!value.is_object()) return value;
  json::object out;
  for (const auto& pair : value.as_object()) out[pair.key()] = FillAll(pair.value(), fill);
  return out;
}

Result<Reply> RecordedReply(const json::object& event) {
  Reply reply;
  const json::value* text = event.if_contains("text");
  if (text != nullptr && text->is_string()) reply.text = text->as_string();
  const json::value* calls = event.if_contains("toolCalls");
  if (calls != nullptr && calls->is_array())
    for (const auto& item : calls->as_array()) {
      const json::object* call = item.if_object();
      if (call == nullptr || !call->contains("name") || !call->contains("input") || !call->at("input").is_object() ||
          !call->at("name").is_string())
        return Fail(Code::kBadRequest, "a recorded tool call is damaged");
      std::string id = "call_" + std::to_string(reply.calls.size() + 1);
      if (const json::value* given = call->if_contains("id"); given != nullptr && given->is_string())
        id = given->as_string();
      reply.calls.push_back({id, std::string(call->at("name").as_string()), call->at("input").as_object()});
    }
  const json::value* stop = event.if_contains("stop");
  const std::string why = stop != nullptr && stop->is_string() ? std::string(stop->as_string()) : std::string();
  reply.stop = reply.calls.empty() ? Stop::kEnd : Stop::kTools;
  if (why == "length") reply.stop = Stop::kLength;
  if (why == "refused") reply.stop = Stop::kRefused;
  if (why == "paused") reply.stop = Stop::kPaused;
  if (const json::value* usage = event.if_contains("usage"); usage != nullptr && usage->is_object()) {
    auto body = wire::DecodeValue<UsageBody>(*usage);
    if (body) reply.usage = {body->input, body->output};
  }
  return reply;
}

}  // namespace

Result<std::vector<Step>> ParseSteps(const json::array& steps) {
  std::vector<Step> out;
  for (const auto& item : steps) {
    auto body = wire::DecodeValue<StepBody>(item);
    if (!body) return std::unexpected(std::move(body).error().Context("step " + std::to_string(out.size() + 1)));
    Step step;
    step.condition = body->if_;
    step.trials = body->trials;
    step.text = body->text.value_or("");
    if (body->tool) step.calls.push_back({*body->tool, ToObject(body->input)});
    for (const CallBody& call : body->tools) step.calls.push_back({call.tool, ToObject(call.input)});
    step.repeat = body->repeat.value_or(1);
    if (body->usage) step.usage = {body->usage->input, body->usage->output};
    out.push_back(std::move(step));
  }
  if (out.empty()) return Fail(Code::kBadRequest, "the script has no steps");
  return out;
}

bool Script::Fits(const Step& step, const std::string& last, std::vector<std::string>* groups) const {
  if (!step.trials.empty() && std::ranges::find(step.trials, trial_) == step.trials.end()) return false;
  if (!step.condition) return true;
  re2::RE2::Options options(re2::RE2::Quiet);
  re2::RE2 pattern(*step.condition, options);
  const int count = std::min(pattern.NumberOfCapturingGroups(), kMaxGroups) + 1;
  std::vector<re2::StringPiece> found(static_cast<size_t>(count));
  if (!pattern.Match(last, 0, last.size(), re2::RE2::UNANCHORED, found.data(), count)) return false;
  for (const re2::StringPiece& group : found) groups->emplace_back(group.data() == nullptr ? "" : group.as_string());
  return true;
}

Result<Reply> Script::Next(const std::string& last_result) {
  while (at_ < steps_.size()) {
    const Step& step = steps_[at_];
    std::vector<std::string> groups;
    if (taken_ >= step.repeat || !Fits(step, last_result, &groups)) {
      ++at_;
      taken_ = 0;
      continue;
    }
    ++taken_;
    Reply reply;
    auto fill = [&](std::string_view text) { return Fill(text, groups, last_result, trial_); };
    reply.text = fill(step.text);
    for (const StepCall& call : step.calls)
      reply.calls.push_back({"call_" + std::to_string(++calls_), call.tool, FillAll(call.input, fill).as_object()});
    reply.stop = reply.calls.empty() ? Stop::kEnd : Stop::kTools;
    reply.usage = step.usage;
    return reply;
  }
  return Fail(Code::kUnavailable, "the script has no step for what the tools returned: " + last_result.substr(0, 300));
}

std::string Fill(std::string_view text, const std::vector<std::string>& groups, const std::string& last, int trial) {
  std::string out;
  while (true) {
    const size_t open = text.find("{{");
    const size_t close = open == std::string_view::npos ? open : text.find("}}", open);
    if (close == std::string_view::npos) return out + std::string(text);
    out += text.substr(0, open);
    const std::string_view name = text.substr(open + 2, close - open - 2);
    if (name == "result") {
      out += last;
    } else if (name == "trial") {
      out += std::to_string(trial);
    } else if (name.size() == 1 && name[0] >= '0' && name[0] <= '9' &&
               static_cast<size_t>(name[0] - '0') < groups.size()) {
      out += groups[static_cast<size_t>(name[0] - '0')];
    } else {
      out += text.substr(open, close + 2 - open);
    }
    text.remove_prefix(close + 2);
  }
}

Result<std::vector<Reply>> RecordedReplies(const json::array& events) {
  std::vector<Reply> out;
  for (const auto& event : events) {
    if (!event.is_object()) return Fail(Code::kBadRequest, "a line of the recording is no object");
    const json::value* type = event.as_object().if_contains("type");
    if (type == nullptr || !type->is_string() || type->as_string() != "reply") continue;
    SB_TRY(Reply reply, RecordedReply(event.as_object()));
    out.push_back(std::move(reply));
  }
  if (out.empty()) return Fail(Code::kBadRequest, "the recording has no replies");
  return out;
}

}  // namespace sandbar::llm
