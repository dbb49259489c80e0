// What a model sees and says, and the one interface of all models: given the conversation, the next reply.
// Single loop. Everything that happens is told to a Record, which transcripts, the live view and evals read.
//
//   SB_TRY(auto model, MakeModel(ex, "anthropic:some-model", environment));
//   SB_CO_TRY(Reply reply, co_await model->Next(&conversation, record));
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"

namespace sandbar::llm {

namespace json = boost::json;

struct Usage {
  int64_t input = 0;
  int64_t output = 0;
  int64_t total() const { return input + output; }
};

struct ToolSpec {
  std::string name;
  std::string description;
  json::object schema;
};

struct ToolCall {
  std::string id;
  std::string name;
  json::object input;
};

// A piece of a tool's result. Bytes come from the sandbox: hostile.
struct Part {
  std::string text;
  std::string mime;  // of an image; empty: text
  std::string data;  // of an image, base64
};

struct ToolResult {
  std::string id;  // of the call
  std::vector<Part> parts;
  bool is_error = false;
  std::optional<int> exit_code;
  // All text, for scripts and checks.
  std::string Text() const;
};

enum class Stop { kEnd, kTools, kLength, kRefused, kPaused };

struct Reply {
  std::string text;
  std::vector<ToolCall> calls;
  Stop stop = Stop::kEnd;
  Usage usage;
  json::array blocks;  // as the provider sent them, to be sent back unchanged; empty: made from text and calls
};

struct Turn {
  Reply reply;
  std::vector<ToolResult> results;
};

struct Conversation {
  std::string system;
  std::string prompt;
  std::vector<ToolSpec> tools;
  std::vector<Turn> turns;
  int64_t max_reply_tokens = 8192;
};

// One event of a run: {"type": "request" | "retry" | …}; docs/agent.md lists them.
using Record = std::function<void(json::object event)>;

class Model {
 public:
  virtual ~Model() = default;
  // `conversation` outlives the call. Errors: kUnauthenticated, kForbidden, kNotFound and kBadRequest are the caller's
  // configuration; all others are failures. What may pass by itself was already tried again.
  virtual Task<Reply> Next(const Conversation* conversation, Record record) = 0;
};

// Reads a variable of the host's environment; empty when absent.
using Environment = std::function<std::string(const char* name)>;

struct ModelOptions {
  Environment environment;
  int trial = 1;  // scripts may depend on it
};

// "anthropic:<id>", "openai:<id>[@<base URL>]", "scripted:<file>", "replay:<file>". kBadRequest says what is wrong.
Result<std::unique_ptr<Model>> MakeModel(const asio::any_io_executor& ex, const std::string& spec,
                                         const ModelOptions& options);
// A scripted model from steps that are already here (script.h).
Result<std::unique_ptr<Model>> MakeScriptedModel(const json::array& steps, int trial);

}  // namespace sandbar::llm
