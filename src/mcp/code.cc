// run_code: pieces of a program whose variables survive from call to call.
#include "mcp/code.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "async/cancelled.h"
#include "base/ids.h"
#include "mcp/cells.h"
#include "mcp/open.h"
#include "mcp/resources.h"
#include "wire/json_decode.h"

namespace sandbar::mcp {
namespace {

constexpr std::chrono::seconds kInterruptGrace{5};
constexpr std::chrono::seconds kRestartGrace{15};
constexpr size_t kErrorCap = 8'000;
constexpr size_t kMaxLinks = 20;

struct CodeArgs {
  std::optional<sandbox::CodeLanguage> language;
  std::string code;
  std::optional<std::string> context, cwd;
  std::optional<int64_t> timeout_ms;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"timeout_ms", "timeoutMs"}, {"lang", "language"}};
};
BOOST_DESCRIBE_STRUCT(CodeArgs, (), (language, code, context, cwd, timeout_ms))

std::string OwnerOf(const ToolCall* call) {
  return call->connection->scope.team + "\n" + call->connection->scope.project + "\n" + call->sandbox;
}

Task<> TellProgress(ToolCall* call, const Cell* cell) {
  if (call->progress == nullptr) co_return Result<>{};
  const int64_t ms = std::max<int64_t>(0, NowMs() - cell->started_at);
  const uint64_t bytes = cell->output.out.total() + cell->output.err.total();
  std::string text = fmt::format("running · {} · {} bytes of output", Elapsed(ms), bytes);
  co_return co_await call->progress->Report(static_cast<double>(ms) / 1000, std::move(text));
}

Task<> Ended(Cell* cell) {
  while (!cell->ended) {
    SB_CO_TRYV(co_await cell->changed.Wait());
  }
  co_return Result<>{};
}

// In slices, as a command is watched.
Task<> WaitFor(ToolCall* call, Cell* cell, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!cell->ended) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) co_return Result<>{};
    SB_CO_TRYV(co_await TellProgress(call, cell));
    Task<> change = Ended(cell);
    const auto slice =
        std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(call->connection->settings.progress_ms));
    auto waited = co_await WithTimeout(std::move(change), slice);
    SB_CO_TRYV(co_await CheckCancelled());
    if (!waited && waited.error().code != Code::kTimeout) co_return waited;
  }
  co_return Result<>{};
}

std::string StatusLine(const Cell& cell) {
  const CellOutput& o = cell.output;
  if (!cell.ended)
    return fmt::format("running · {} · handle {}", Elapsed(std::max<int64_t>(0, NowMs() - cell.started_at)),
                       cell.handle);
  std::string line = fmt::format("exit code {} · {}", o.exit_code, Elapsed(o.duration_ms));
  if (o.status != "ok") line += " · " + o.status;
  return line + fmt::format(" · {} [{}]", o.context, o.count);
}

void AddSection(std::string& text, std::string_view name, const HeadTail& part, size_t cap) {
  if (part.total() == 0) return;
  text += fmt::format("\n{}:\n{}", name, part.Render(cap));
  while (text.ends_with('\n')) text.pop_back();
}

std::string Files(const std::vector<json::object>& artifacts) {
  std::string text;
  for (const json::object& a : artifacts)
    text += fmt::format("\n{}  {}", std::string_view(a.at("path").as_string()), json::serialize(a.at("size")));
  return text;
}

ToolResult ToResult(const ToolCall* call, const Cell& cell, const std::string& note) {
  const CellOutput& o = cell.output;
  std::string text = StatusLine(cell);
  const std::string error = CutText(o.error, kErrorCap);
  const size_t cap = kTextCap - std::min(kErrorCap, error.size());
  AddSection(text, "stdout", o.out, cap / 3);
  AddSection(text, "stderr", o.err, cap / 3);
  AddSection(text, "result", o.shown, cap / 3);
  if (!error.empty()) text += "\nerror:\n" + error;
  while (text.ends_with('\n')) text.pop_back();
  if (text == StatusLine(cell)) text += "\n(no output)";
  if (!o.artifacts.empty()) text += "\nfiles written:" + CutText(Files(o.artifacts), 3000);
  if (o.images_left_out > 0) text += fmt::format("\n[{} images left out: too large or too many]", o.images_left_out);
  if (!cell.ended) text += fmt::format("\nstill running; go on with read_output {{\"handle\":\"{}\"}}", cell.handle);
  if (!note.empty()) text += "\n" + note;
  ToolResult result = TextResult(text);
  for (const json::value& image : o.images) result.content.push_back(image);
  for (size_t i = 0; i < std::min(o.artifacts.size(), kMaxLinks); ++i)
    result.content.emplace_back(LinkTo(call->sandbox, o.artifacts[i]));
  return result;
}

// The end of a call. Code that has ended is told once and forgotten; a viewer's look takes it from nobody.
Result<ToolResult> Tell(const ToolCall* call, const std::shared_ptr<Cell>& cell, const std::string& note) {
  const bool may_take = sandbox::May(call->connection->scope.caller, sandbox::KeyRole::kOperator);
  if (cell->ended && may_take) call->connection->cells->Drop(cell->handle);
  if (cell->failure) return std::unexpected(*cell->failure);
  if (cell->ended && cell->output.status.empty())
    return Fail(Code::kStopped, "the code was ended by its context's end");
  return ToResult(call, *cell, note);
}

Task<> Change(ToolCall* call, Cell* cell, sandbox::ContextChange change, std::chrono::milliseconds grace) {
  std::string name = call->sandbox;
  std::string context = cell->output.context;
  auto done = co_await call->connection->domain->code->Change(call->connection->scope, std::move(name),
                                                              std::move(context), change);
  if (!done) co_return std::unexpected(std::move(done).error());
  co_return co_await WaitFor(call, cell, grace);
}

}  // namespace

bool IsCellHandle(std::string_view handle) {
  return handle.starts_with("cell_");
}

Task<ToolResult> RunCode(ToolCall* call) {
  SB_CO_TRY(CodeArgs args, wire::DecodeValue<CodeArgs>(call->arguments));
  SB_CO_TRY(Opened opened, co_await OpenSandbox(call));
  sandbox::CodeSpec spec;
  spec.language = args.language;
  if (!spec.language && !args.context) spec.language = sandbox::CodeLanguage::kPython;
  spec.code = std::move(args.code);
  spec.context = std::move(args.context);
  spec.cwd = std::move(args.cwd);
  spec.timeout_ms = args.timeout_ms;
  std::string name = call->sandbox;
  auto stream = co_await call->connection->domain->code->Run(call->connection->scope, std::move(name), std::move(spec));
  if (!stream) co_return std::unexpected(std::move(stream).error());
  SB_CO_TRY(auto cell,
            call->connection->cells->Add(OwnerOf(call), *std::move(stream), call->connection->settings.idle_ms));
  call->waited->cell = cell->handle;
  const std::chrono::milliseconds limit(call->connection->settings.handle_after_ms);
  SB_CO_TRYV(co_await WaitFor(call, cell.get(), limit));
  // From here on it is the handle's.
  call->waited->cell.clear();
  co_return Tell(call, cell, opened.note);
}

Task<ToolResult> ReadCell(ToolCall* call, std::string handle, std::chrono::milliseconds wait, bool kill) {
  auto cell = call->connection->cells->Find(OwnerOf(call), handle);
  if (!cell) co_return Fail(Code::kNotFound, "handle: no such run of code; what has ended is told once");
  if (!kill) {
    SB_CO_TRYV(co_await WaitFor(call, cell.get(), wait));
  } else if (!cell->ended) {
    SB_CO_TRYV(co_await Change(call, cell.get(), sandbox::ContextChange::kInterrupt, kInterruptGrace));
    if (!cell->ended) {
      SB_CO_TRYV(co_await Change(call, cell.get(), sandbox::ContextChange::kRestart, kRestartGrace));
    }
  }
  co_return Tell(call, cell, "");
}

}  // namespace sandbar::mcp
