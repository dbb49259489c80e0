#include "mcp/open.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ids.h"
#include "mcp/output.h"
#include "sandbox/engine_selector.h"

namespace sandbar::mcp {
namespace {

// Below this an extension is not worth a row written.
constexpr int64_t kExtendStepMs = 30'000;
constexpr int kTries = 3;

bool IsOurs(const store::Sandbox& sandbox) {
  return sandbox.tags.contains(kMadeByTag);
}

// A viewer's call reads what is there: it makes, resumes and extends nothing.
bool MayChange(const ToolCall* call) {
  return sandbox::May(call->connection->scope.caller, sandbox::KeyRole::kOperator);
}

// Without a snapshot a stopped machine has nothing to go on from.
bool IsGone(const Error& error) {
  return error.code == Code::kSnapshotMissing || error.code == Code::kSnapshotGone;
}

// The idle limit is a time limit that every call moves. It gives the server's own limit for sessions precedence.
Task<> KeepAlive(const ToolCall* call, const Opened* opened) {
  const int64_t idle = call->connection->settings.idle_ms;
  const store::Session& session = opened->session;
  if (!MayChange(call) || !IsOurs(opened->sandbox) || !session.started_at || session.status != store::Status::kRunning)
    co_return Result<>{};
  const int64_t left = *session.started_at + session.timeout_ms - NowMs();
  if (left > idle - std::min(kExtendStepMs, idle / 4)) co_return Result<>{};
  std::string id = session.id;
  auto moved = co_await call->connection->domain->sessions->ExtendTimeout(call->connection->scope, std::move(id),
                                                                          std::max<int64_t>(1000, idle - left));
  if (!moved && moved.error().code != Code::kTimeoutInvalid) co_return std::unexpected(std::move(moved).error());
  co_return Result<>{};
}

Task<Opened> Make(const ToolCall* call) {
  sandbox::CreateSpec spec = call->connection->make;
  spec.name = call->sandbox;
  spec.timeout_ms = call->connection->settings.idle_ms;
  spec.persistent = false;
  spec.tags[kMadeByTag] = "1";
  spec.tags[sandbox::kDisposableTag] = "1";
  auto view = co_await call->connection->domain->sandboxes->Create(call->connection->scope, std::move(spec));
  if (!view) co_return std::unexpected(std::move(view).error());
  co_return Opened{std::move(view->sandbox), std::move(view->session), ""};
}

// A stopped sandbox of ours makes room for a new one.
Task<> RemoveStopped(const ToolCall* call) {
  std::string name = call->sandbox;
  auto view = co_await call->connection->domain->sandboxes->Get(call->connection->scope, name, false);
  if (!view) co_return std::unexpected(std::move(view).error());
  if (!IsOurs(view->sandbox))
    co_return Fail(Code::kStopped, "sandbox \"" + name + "\" has stopped and kept nothing to go on from");
  auto gone = co_await call->connection->domain->sandboxes->Delete(call->connection->scope, std::move(name), false);
  if (!gone && gone.error().code != Code::kNotFound) co_return std::unexpected(std::move(gone).error());
  co_return Result<>{};
}

Task<Opened> Resume(const ToolCall* call) {
  std::string name = call->sandbox;
  auto view = co_await call->connection->domain->sandboxes->Get(call->connection->scope, std::move(name), true);
  if (!view) co_return std::unexpected(std::move(view).error());
  // It is used as it is, but never as less than what the operator chose.
  if (!sandbox::Meets(call->connection->make.isolation, view->session.engine, view->session.isolation_class,
                      view->session.nesting)) {
    co_return Fail(Code::kConflict, fmt::format("sandbox \"{}\" has isolation class {} ({}), less than this server is "
                                                "set to use here",
                                                call->sandbox, view->session.isolation_class, view->session.engine));
  }
  Opened opened{std::move(view->sandbox), std::move(view->session), ""};
  SB_CO_TRYV(co_await KeepAlive(call, &opened));
  co_return opened;
}

}  // namespace

Task<Opened> OpenSandbox(const ToolCall* call) {
  if (!MayChange(call)) co_return co_await FindSandbox(call);
  std::string note;
  // Others may make, stop and remove the same name meanwhile.
  for (int i = 1;; ++i) {
    auto opened = co_await Resume(call);
    if (opened) co_return opened;
    const bool gone = IsGone(opened.error());
    if (i == kTries || (!gone && opened.error().code != Code::kNotFound)) co_return opened;
    if (gone) {
      SB_CO_TRYV(co_await RemoveStopped(call));
      note = fmt::format("note: the sandbox had been stopped ({} without a call); this is a new, empty one",
                         Elapsed(call->connection->settings.idle_ms));
    }
    auto made = co_await Make(call);
    if (made) made->note = note;
    if (made || made.error().code != Code::kNameTaken || i + 1 == kTries) co_return made;
  }
}

Task<Opened> FindSandbox(const ToolCall* call) {
  std::string name = call->sandbox;
  auto view = co_await call->connection->domain->sandboxes->Get(call->connection->scope, std::move(name), false);
  if (!view) co_return std::unexpected(std::move(view).error());
  Opened opened{std::move(view->sandbox), std::move(view->session), ""};
  SB_CO_TRYV(co_await KeepAlive(call, &opened));
  co_return opened;
}

}  // namespace sandbar::mcp
