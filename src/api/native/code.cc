// run_code and its contexts (docs/run-code.md).
#include <boost/json.hpp>

#include "api/api.h"
#include "api/call.h"
#include "api/errors.h"
#include "api/handlers.h"
#include "api/keep_alive_stream.h"
#include "wire/json_decode.h"
#include "wire/ndjson.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;
using sandbox::CodeLanguage;

struct CodeBody {
  std::optional<CodeLanguage> language;
  std::string code;
  std::optional<std::string> context;
  std::optional<int64_t> timeout_ms;
  std::map<std::string, std::string> env;
  std::optional<std::string> cwd;
  static constexpr wire::JsonAlias kJsonAliases[] = {
      {"envs", "env"}, {"contextId", "context"}, {"timeout", "timeoutMs"}};
};
BOOST_DESCRIBE_STRUCT(CodeBody, (), (language, code, context, timeout_ms, env, cwd))

struct ContextBody {
  CodeLanguage language = CodeLanguage::kPython;
  std::map<std::string, std::string> env;
  std::optional<std::string> cwd;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"envs", "env"}};
};
BOOST_DESCRIBE_STRUCT(ContextBody, (), (language, env, cwd))

json::object ContextJson(const sandbox::CodeContextInfo& info) {
  const std::string_view language = sandbox::CodeLanguageName(info.language);
  return {{"id", info.id},
          {"language", language},
          {"state", info.state},
          {"executionCount", info.execution_count},
          {"default", info.id == language},
          {"createdAt", info.created_at},
          {"lastUsedAt", info.last_used_at}};
}

Task<> PumpCode(KeepAliveStream* stream, sandbox::CodeStream* events) {
  while (true) {
    SB_CO_TRY(std::string lines, co_await events->Next());
    if (lines.empty()) co_return Result<>{};
    SB_CO_TRYV(co_await stream->Write(std::move(lines)));
  }
}

Task<> ChangeOne(Call* call, sandbox::ContextChange change) {
  std::string name = call->Param("name");
  std::string id = call->Param("context");
  auto info = co_await call->domain->code->Change(call->scope, std::move(name), std::move(id), change);
  if (!info) co_return std::unexpected(std::move(info).error());
  json::object body{{"context", ContextJson(*info)}};
  co_return co_await call->Reply(std::move(body));
}

}  // namespace

Task<> RunCode(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  wire::JsonLimits limits{kMaxJsonBody, 32};
  SB_CO_TRY(CodeBody body, wire::DecodeJson<CodeBody>(text, limits));
  sandbox::CodeSpec spec{body.language,   std::move(body.code), std::move(body.context),
                         body.timeout_ms, std::move(body.env),  std::move(body.cwd)};
  std::string name = call->Param("name");
  auto events = co_await call->domain->code->Run(call->scope, std::move(name), std::move(spec));
  if (!events) co_return std::unexpected(std::move(events).error());
  call->last_words = [](std::string_view why) {
    json::object ended{{"type", "error"}, {"name", "SandbarError"}, {"value", why}, {"traceback", ""}};
    return wire::NdjsonLine(ended);
  };
  SB_CO_TRYV(co_await call->StartStream("application/x-ndjson"));
  auto ex = co_await asio::this_coro::executor;
  KeepAliveStream stream(call->exchange, "\n", call->config->stream_keep_alive, ex);
  auto pump = PumpCode(&stream, events->get());
  SB_CO_TRYV(co_await stream.Run(std::move(pump)));
  co_return co_await call->exchange->Finish();
}

Task<> ListContexts(Call* call) {
  std::string name = call->Param("name");
  auto list = co_await call->domain->code->List(call->scope, std::move(name));
  if (!list) co_return std::unexpected(std::move(list).error());
  json::array rows;
  for (const auto& info : *list) rows.emplace_back(ContextJson(info));
  json::object body{{"contexts", std::move(rows)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> CreateContext(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(ContextBody body, wire::DecodeJson<ContextBody>(text));
  sandbox::CodeContextSpec spec{body.language, std::move(body.cwd), std::move(body.env)};
  std::string name = call->Param("name");
  auto info = co_await call->domain->code->Create(call->scope, std::move(name), std::move(spec));
  if (!info) co_return std::unexpected(std::move(info).error());
  json::object reply{{"context", ContextJson(*info)}};
  co_return co_await call->Reply(std::move(reply));
}

Task<> InterruptContext(Call* call) {
  co_return co_await ChangeOne(call, sandbox::ContextChange::kInterrupt);
}

Task<> RestartContext(Call* call) {
  co_return co_await ChangeOne(call, sandbox::ContextChange::kRestart);
}

Task<> DeleteContext(Call* call) {
  co_return co_await ChangeOne(call, sandbox::ContextChange::kRemove);
}

}  // namespace sandbar::api
