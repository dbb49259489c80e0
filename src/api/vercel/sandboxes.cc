// Named sandboxes: create, get (and resume), list, update, delete.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "api/call.h"
#include "api/create_answers.h"
#include "api/fresh_shells.h"
#include "api/handlers.h"
#include "api/vercel/requests.h"
#include "api/vercel/shapes.h"
#include "base/ids.h"
#include "base/log.h"
#include "crypto/digest.h"
#include "sandbox/engine_selector.h"
#include "wire/json_parse.h"

namespace sandbar::api {

namespace json = boost::json;

namespace {

json::object WithExpiry(Call* call, const store::Sandbox& sandbox) {
  const auto current = call->domain->sessions->Running(call->scope, sandbox.current_session);
  return SandboxJson(sandbox, current ? &*current : nullptr);
}

// Whose request it is counts too: the token as it was sent, because all short-lived ones have the same id.
std::string RequestDigest(Call* call, const std::string& body) {
  const std::string who(call->request().Get("authorization"));
  return crypto::Sha256Hex(who + "\n" + call->scope.team + "\n" + call->scope.project + "\n" + body);
}

// The protocol's CLI, which may or may not be about to ask for a shell.
bool MayWantShell(const std::string& body) {
  auto value = wire::ParseJson(body);
  const json::value* asked = value && value->is_object() ? value->as_object().if_contains("__interactive") : nullptr;
  return asked != nullptr && asked->is_bool() && asked->as_bool();
}

void NoteShell(Call* call, const sandbox::SandboxView& view, json::object* body) {
  (*body)[WrapperKey(call->v1())].as_object()["interactivePort"] = kInteractivePort;
  call->fresh_shells->Add(view.sandbox.name, view.session.id);
}

// Sets `gone` when the client goes away, and then waits to be cancelled. WaitClosed also completes when the client's
// credential ends: then the client is still there for its answer.
Task<> WatchClient(Call* call, bool* gone) {
  SB_CO_TRYV(co_await call->exchange->WaitClosed());
  *gone = !call->credential->ended();
  co_return co_await Sleep(std::chrono::hours(24));
}

// The create goes on when its client is gone: what became of it has to be known.
Task<sandbox::SandboxView> CreateWatched(Call* call, sandbox::CreateSpec spec, bool* gone) {
  using namespace asio::experimental::awaitable_operators;
  auto create = call->domain->sandboxes->Create(call->scope, std::move(spec));
  auto first = co_await (std::move(create) || WatchClient(call, gone));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return Fail(Code::kCancelled, "the server is shutting down");
}

// The same request again, because its answer got lost on the way: it gets what the first one made.
Task<sandbox::SandboxView> Repeated(Call* call, std::string name, std::string digest, Error refused) {
  auto found = co_await call->domain->sandboxes->Get(call->scope, name, false);
  const bool same = found && found->sandbox.create_digest == digest &&
                    NowMs() - found->sandbox.created_at < CreateAnswers::kKept.count() &&
                    !call->create_answers->Contains(digest);
  if (!same) co_return std::unexpected(std::move(refused));
  // Waits for the first one if that is still under way.
  co_return co_await call->domain->sandboxes->Get(call->scope, std::move(name), true);
}

// A get that demands isolation, as getOrCreate does, must not be answered with a sandbox that has less.
Result<> HoldToDemand(const wire::Query& query, const store::Session& session) {
  auto demand = ParseDemand(query, "__isolation");
  // What cannot be read can still be met: by the most there is.
  if (query.Get("__nesting") == "true" && !session.nesting)
    return Fail(Code::kConflict, fmt::format("sandbox \"{}\" exists without nesting, which `__nesting` demands: delete "
                                             "it, or use another name",
                                             session.sandbox));
  if (!demand && session.isolation_class >= 3) return {};
  if (!demand) return std::unexpected(std::move(demand).error());
  if (!*demand || sandbox::Meets(**demand, session.engine, session.isolation_class, session.nesting)) return {};
  return Fail(
      Code::kConflict,
      fmt::format("sandbox \"{}\" exists with class {} ({}), which is not what `__isolation` demands: delete it, "
                  "or use another name",
                  session.sandbox, session.isolation_class, session.engine));
}

}  // namespace

Task<> CreateSandbox(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(CreateRequest request, ParseCreate(text, call->version));
  SB_CO_TRYV(call->UseProject(request.project));
  const std::string name = request.spec.name.value_or("");
  const std::string digest = RequestDigest(call, text);
  request.spec.digest = digest;
  bool gone = false;
  auto view = co_await CreateWatched(call, std::move(request.spec), &gone);
  // Its name, or a drive that it mounts, may be taken by what the lost answer was about.
  const bool taken = !view && (view.error().code == Code::kNameTaken || view.error().code == Code::kConflict);
  if (taken && !name.empty()) view = co_await Repeated(call, name, digest, view.error());
  if (!view) co_return std::unexpected(std::move(view).error());
  Result<> answered = Fail(Code::kClosed, "the client is gone");
  if (!gone) {
    json::object body = ViewJson(*view, call->preview_urls, call->v1(), false);
    if (MayWantShell(text)) NoteShell(call, *view, &body);
    answered = co_await call->Reply(std::move(body));
  }
  if (answered) {
    call->create_answers->Add(digest);
  } else if (name.empty()) {
    // Nobody knows what it is called, so nobody would ever use it.
    log::Info("sandbox {}: its client is gone, deleted", view->sandbox.name);
    auto undone = co_await call->domain->sandboxes->Delete(call->scope, view->sandbox.name, true);
    if (!undone) log::Warn("sandbox {}: {}", view->sandbox.name, undone.error().message);
  }
  co_return answered;
}

Task<> GetSandbox(Call* call) {
  const bool resume = call->Flag("resume");
  // A resume starts a machine.
  if (resume) SB_CO_TRYV(call->Need(sandbox::KeyRole::kOperator));
  std::string name = call->Param("name");
  auto view = co_await call->domain->sandboxes->Get(call->scope, std::move(name), resume);
  if (!view) co_return std::unexpected(std::move(view).error());
  SB_CO_TRYV(HoldToDemand(call->query, view->session));
  json::object body = ViewJson(*view, call->preview_urls, false, resume);
  co_return co_await call->Reply(std::move(body));
}

Task<> ListSandboxes(Call* call) {
  SB_CO_TRY(sandbox::ListQuery query, ParseListQuery(call->query, false));
  auto page = co_await call->domain->sandboxes->List(call->scope, std::move(query));
  if (!page) co_return std::unexpected(std::move(page).error());
  json::array items;
  for (const store::Sandbox& sandbox : page->items) items.emplace_back(WithExpiry(call, sandbox));
  json::object body{{"sandboxes", std::move(items)}, {"pagination", PaginationJson(page->items.size(), page->next)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> UpdateSandbox(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(UpdateRequest request, ParseUpdate(text));
  const bool ports_given = request.spec.ports.has_value();
  std::string name = call->Param("name");
  auto sandbox = co_await call->domain->sandboxes->Update(call->scope, std::move(name), std::move(request.spec));
  if (!sandbox) co_return std::unexpected(std::move(sandbox).error());
  json::object body{{"sandbox", WithExpiry(call, *sandbox)}};
  if (ports_given) body["routes"] = RoutesJson(sandbox->routes, call->preview_urls);
  co_return co_await call->Reply(std::move(body));
}

Task<> ForkSandbox(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(sandbox::ForkSpec spec, ParseFork(text));
  std::string name = call->Param("name");
  auto view = co_await call->domain->sandboxes->Fork(call->scope, std::move(name), std::move(spec));
  if (!view) co_return std::unexpected(std::move(view).error());
  json::object body = ViewJson(*view, call->preview_urls, false, false);
  if (MayWantShell(text)) NoteShell(call, *view, &body);
  if (view->memory_snapshot) {
    body["pauseMs"] = view->memory_snapshot->pause.count();
    body["memoryBytes"] = view->memory_snapshot->memory_bytes;
  }
  co_return co_await call->Reply(std::move(body));
}

Task<> DeleteSandbox(Call* call) {
  std::string name = call->Param("name");
  bool orphans = call->Flag("deleteOrphanSnapshots");
  auto sandbox = co_await call->domain->sandboxes->Delete(call->scope, std::move(name), orphans);
  if (!sandbox) co_return std::unexpected(std::move(sandbox).error());
  json::object body{{"sandbox", WithExpiry(call, *sandbox)}};
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
