// For tests: the memory that the fakes of the domain's roles share. A test sets what calls answer, decides when output
// comes and when a command ends, and reads what was asked. All members belong to the loop; tests touch them through
// ApiFixture::OnLoop.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "http/byte_stream.h"
#include "sandbox/roles.h"

namespace sandbar::api {

struct FakeState {
  explicit FakeState(const asio::any_io_executor& ex) : changed(ex) {
    sandbox.name = "demo";
    sandbox.team = "team_sandbar";
    sandbox.project = "prj_sandbar";
    sandbox.persistent = false;
    sandbox.status = store::Status::kRunning;
    sandbox.current_session = "sbx_1";
    sandbox.cwd = "/vercel";
    sandbox.engine = "fake";
    sandbox.isolation_class = 1;
    session.id = "sbx_1";
    session.sandbox = "demo";
    session.project = "prj_sandbar";
    session.status = store::Status::kRunning;
    session.runtime = "node24";
    session.cwd = "/vercel";
    session.started_at = 1000;
    snapshot.id = "snap_1";
    snapshot.session = "sbx_1";
    snapshot.region = "iad1";
    snapshot.engine = "fake";
    snapshot.format = "dir";
    command.id = "cmd_1";
    command.session = "sbx_1";
    command.name = "sh";
    command.cwd = "/vercel";
  }

  // The script.
  std::optional<Error> fail;                      // what every call answers, when set; those of Keys excepted
  std::map<std::string, sandbox::Identity> keys;  // by secret
  // A key "key_<secret>" of every project.
  sandbox::Identity& AddKey(const std::string& secret, sandbox::KeyRole role = sandbox::KeyRole::kAdmin) {
    sandbox::Identity& who = keys[secret];
    who.principal = {"key_" + secret, secret, role, "*", "*", std::nullopt, false};
    who.life = std::make_shared<sandbox::KeyLife>();
    return who;
  }
  std::vector<std::string> pieces;  // of the file that ReadFile finds
  std::optional<Error> read_ends_with;
  std::function<Fd()> dial;  // a connection to the server in the sandbox
  std::shared_ptr<http::Traffic> traffic = std::make_shared<http::Traffic>();  // of it
  using Step = std::variant<sandbox::LogChunk, Error>;
  void Wake() { changed.Notify(); }
  void Say(Step step) {
    log.push_back(std::move(step));
    changed.Notify();
  }
  void Out(uint8_t stream, std::string bytes) { Say(sandbox::LogChunk{stream, std::move(bytes), 0}); }
  void EndLog() { Say(sandbox::LogChunk{}); }
  void Exit(int status) {
    command.exit_code = status;
    command.duration_ms = 5;
    changed.Notify();
  }

  // What was asked.
  std::optional<sandbox::ForkSpec> fork;
  std::string paused;
  sandbox::ResumeFrom resume_from = sandbox::ResumeFrom::kEither;
  bool orphans = false;
  sandbox::Scope scope;
  std::optional<sandbox::CreateSpec> create;
  std::optional<sandbox::UpdateSpec> update;
  std::optional<sandbox::CommandSpec> command_spec;
  std::optional<sandbox::ListQuery> list;
  std::optional<sandbox::CodeSpec> code_spec;
  std::optional<sandbox::KeySpec> key_spec;
  std::string asked;  // name, id, path, mode: whatever names the object of the last call
  std::optional<std::string> cwd;
  bool flag = false;
  int64_t number = 0;
  std::string written;
  std::optional<sandbox::FileTarget> file_target;
  std::optional<engine::FileRange> file_range;
  std::optional<protocol::WriteFile> file_write;
  std::optional<engine::FileEdit> file_edit;
  sandbox::FileList file_list;
  std::string list_after;
  uint32_t list_limit = 0;
  int readers = 0;  // log readers alive
  int files = 0;    // readers of files alive
  int waits = 0;    // pending calls of Commands::Wait
  int calls = 0;    // of anything but Keys

  int users = 0;             // of sessions, by Use
  bool name_taken = false;   // a create finds its name taken
  bool hold_create = false;  // a create waits until Wake
  int waiting_creates = 0;
  int deleted = 0;
  std::optional<store::Session> running;
  std::vector<store::ProjectUsage> usage;

  // Every call of a role begins here: it notes who asked and what for, and fails as the script says.
  Result<> Begin(const sandbox::Scope& s, std::string what) {
    ++calls;
    scope = s;
    asked = std::move(what);
    if (fail) return std::unexpected(*fail);
    return {};
  }
  Result<sandbox::SandboxView> View(const sandbox::Scope& s, std::string what) {
    SB_TRYV(Begin(s, std::move(what)));
    return sandbox::SandboxView{sandbox, session, false};
  }

  // The rows that calls answer with.
  store::Sandbox sandbox;
  store::Session session;
  store::Command command;
  store::Snapshot snapshot;
  store::Key key{.id = "key_1", .sha256_hex = "hash-of-it", .name = "ci", .team = "t", .project = "p"};
  sandbox::DriveView drive;
  sandbox::CodeContextInfo context{"ctx_1", sandbox::CodeLanguage::kPython, "idle", 3, 1000, 2000};
  std::deque<Step> log;
  Event changed;
};

}  // namespace sandbar::api
