#include "llm/model.h"

#include "llm/http_model.h"
#include "llm/script.h"
#include "llm/yaml.h"

namespace sandbar::llm {
namespace {

class ScriptedModel final : public Model {
 public:
  ScriptedModel(std::vector<Step> steps, int trial) : script_(std::move(steps), trial) {}
  Task<Reply> Next(const Conversation* conversation, Record) override {
    std::string last;
    if (!conversation->turns.empty())
      for (const ToolResult& result : conversation->turns.back().results) last += result.Text() + "\n";
    co_return script_.Next(last);
  }

 private:
  Script script_;
};

class ReplayModel final : public Model {
 public:
  explicit ReplayModel(std::vector<Reply> replies) : replies_(std::move(replies)) {}
  Task<Reply> Next(const Conversation*, Record) override {
    if (next_ == replies_.size())
      co_return Fail(Code::kUnavailable, "the recording has no reply number " + std::to_string(next_ + 1));
    co_return replies_[next_++];
  }

 private:
  std::vector<Reply> replies_;
  size_t next_ = 0;
};

}  // namespace

std::string ToolResult::Text() const {
  std::string all;
  for (const Part& part : parts) {
    if (!all.empty()) all += '\n';
    all += part.mime.empty() ? part.text : "[image " + part.mime + "]";
  }
  return all;
}

Result<std::unique_ptr<Model>> MakeScriptedModel(const json::array& steps, int trial) {
  SB_TRY(std::vector<Step> parsed, ParseSteps(steps));
  return std::make_unique<ScriptedModel>(std::move(parsed), trial);
}

Result<std::unique_ptr<Model>> MakeModel(const asio::any_io_executor& ex, const std::string& spec,
                                         const ModelOptions& options) {
  const size_t colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  const std::string rest = colon == std::string::npos ? std::string() : spec.substr(colon + 1);
  if (rest.empty() || (kind != "anthropic" && kind != "openai" && kind != "scripted" && kind != "replay"))
    return Fail(Code::kBadRequest, "'" + spec +
                                       "' names no model: write anthropic:<id>, openai:<id>[@<base URL>], "
                                       "scripted:<file> or replay:<file>");
  if (kind == "anthropic") return MakeAnthropicModel(ex, rest, options.environment);
  if (kind == "openai") return MakeOpenAiModel(ex, rest, options.environment);
  if (kind == "scripted") {
    SB_TRY(json::array steps, ReadList(rest));
    auto model = MakeScriptedModel(steps, options.trial);
    if (!model) return std::unexpected(std::move(model).error().Context(rest));
    return model;
  }
  SB_TRY(json::array events, ReadList(rest));
  auto replies = RecordedReplies(events);
  if (!replies) return std::unexpected(std::move(replies).error().Context(rest));
  return std::make_unique<ReplayModel>(std::move(*replies));
}

}  // namespace sandbar::llm
