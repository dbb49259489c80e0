// For tests: a Service that answers from memory and from a script, so that a test decides when output comes, when a
// command ends and what fails. All members belong to the loop; tests touch them through ApiFixture::OnLoop.
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
#include "sandbox/service.h"
#include "sandbox/tokens.h"

namespace sandbar::api {

class FakeService : public sandbox::Service {
 public:
  using Step = std::variant<sandbox::LogChunk, Error>;

  explicit FakeService(const asio::any_io_executor& ex) : changed_(ex) {
    sandbox_.name = "demo";
    sandbox_.team = "team_sandbar";
    sandbox_.project = "prj_sandbar";
    sandbox_.persistent = false;
    sandbox_.status = store::Status::kRunning;
    sandbox_.current_session = "sbx_1";
    sandbox_.cwd = "/vercel";
    sandbox_.engine = "fake";
    sandbox_.isolation_class = 1;
    session_.id = "sbx_1";
    session_.sandbox = "demo";
    session_.project = "prj_sandbar";
    session_.status = store::Status::kRunning;
    session_.runtime = "node24";
    session_.cwd = "/vercel";
    session_.started_at = 1000;
    snapshot_.id = "snap_1";
    snapshot_.session = "sbx_1";
    snapshot_.region = "iad1";
    snapshot_.engine = "fake";
    snapshot_.format = "dir";
    command_.id = "cmd_1";
    command_.session = "sbx_1";
    command_.name = "sh";
    command_.cwd = "/vercel";
  }

  // The script.
  std::optional<Error> fail;  // what every call but CheckToken answers, when set
  std::map<std::string, store::Token> tokens;
  std::vector<std::string> pieces;  // of the file that ReadFile finds
  std::optional<Error> read_ends_with;
  std::function<Fd()> dial;  // a connection to the server in the sandbox
  std::shared_ptr<http::Traffic> traffic = std::make_shared<http::Traffic>();  // of it
  std::vector<store::PortRoute>& routes() { return sandbox_.routes; }
  store::Session& session() { return session_; }
  void Wake() { changed_.Notify(); }
  void SetCreatedAt(int64_t ms) { sandbox_.created_at = ms; }
  void Say(Step step) {
    log_.push_back(std::move(step));
    changed_.Notify();
  }
  void Out(uint8_t stream, std::string bytes) { Say(sandbox::LogChunk{stream, std::move(bytes), 0}); }
  void EndLog() { Say(sandbox::LogChunk{}); }
  void Exit(int status) {
    command_.exit_code = status;
    command_.duration_ms = 5;
    changed_.Notify();
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
  std::string asked;  // name, id, path, mode: whatever names the object of the last call
  std::optional<std::string> cwd;
  bool flag = false;
  int64_t number = 0;
  std::string written;
  int readers = 0;  // log readers alive
  int files = 0;    // readers of files alive
  int waits = 0;    // WaitCommand calls pending
  int calls = 0;    // of anything but CheckToken

  int users = 0;             // of sessions, by Use
  bool name_taken = false;   // a create finds its name taken
  bool hold_create = false;  // a create waits until Wake
  int waiting_creates = 0;
  int deleted = 0;
  std::optional<store::Session> running;
  std::vector<store::ProjectUsage> usage;

  std::shared_ptr<void> Use(const sandbox::Scope&, const std::string&) override {
    ++users;
    return {&users, [this](void*) { --users; }};
  }
  std::optional<store::Session> Running(const std::string&) const override { return running; }
  Task<std::vector<store::ProjectUsage>> Usage(sandbox::Scope s) override {
    SB_CO_TRYV(Begin(s, ""));
    co_return usage;
  }

  sandbox::ServerInfo info() const override {
    return {"allow-all",
            "fake",
            1,
            3,
            {{.name = "fake"}, {.name = "strong", .isolation_class = 3, .usable = false, .why_not = "no KVM"}}};
  }

  Task<sandbox::SandboxView> Create(sandbox::Scope s, sandbox::CreateSpec spec) override {
    create = std::move(spec);
    if (name_taken) co_return Fail(Code::kNameTaken, "taken");
    ++waiting_creates;
    while (hold_create) {
      auto woken = co_await changed_.Wait();
      if (!woken) co_return std::unexpected(std::move(woken).error());
    }
    --waiting_creates;
    sandbox_.create_digest = create->digest;
    sandbox_.created_at = NowMs();
    co_return View(s, "");
  }
  Task<sandbox::SandboxView> Get(sandbox::Scope s, std::string name, bool start) override {
    flag = start;
    co_return View(s, std::move(name));
  }
  Task<sandbox::Page<store::Sandbox>> List(sandbox::Scope s, sandbox::ListQuery query) override {
    list = std::move(query);
    SB_CO_TRYV(Begin(s, ""));
    co_return sandbox::Page<store::Sandbox>{{sandbox_}, "cursor-2"};
  }
  Task<store::Sandbox> Update(sandbox::Scope s, std::string name, sandbox::UpdateSpec spec) override {
    update = std::move(spec);
    SB_CO_TRYV(Begin(s, std::move(name)));
    co_return sandbox_;
  }
  Task<store::Sandbox> Delete(sandbox::Scope s, std::string name, bool orphan_snapshots) override {
    orphans = orphan_snapshots;
    ++deleted;
    SB_CO_TRYV(Begin(s, std::move(name)));
    co_return sandbox_;
  }
  Task<sandbox::SandboxView> Pause(sandbox::Scope s, std::string name) override {
    paused = name;
    co_return View(s, std::move(name));
  }
  Task<sandbox::SandboxView> Resume(sandbox::Scope s, std::string name, sandbox::ResumeFrom from) override {
    resume_from = from;
    co_return View(s, std::move(name));
  }
  Task<sandbox::SandboxView> Fork(sandbox::Scope s, std::string name, sandbox::ForkSpec spec) override {
    fork = std::move(spec);
    co_return View(s, std::move(name));
  }
  Task<sandbox::SnapshotTaken> TakeSnapshot(sandbox::Scope s, std::string id, std::optional<int64_t> ms) override {
    number = ms.value_or(-1);
    SB_CO_TRYV(Begin(s, std::move(id)));
    co_return sandbox::SnapshotTaken{snapshot_, session_};
  }
  Task<sandbox::Page<store::Snapshot>> ListSnapshots(sandbox::Scope s, sandbox::ListQuery query) override {
    list = std::move(query);
    SB_CO_TRYV(Begin(s, ""));
    co_return sandbox::Page<store::Snapshot>{{snapshot_}, "cursor-2"};
  }
  Task<store::Snapshot> GetSnapshot(sandbox::Scope s, std::string id) override {
    SB_CO_TRYV(Begin(s, std::move(id)));
    co_return snapshot_;
  }
  Task<store::Snapshot> DeleteSnapshot(sandbox::Scope s, std::string id) override {
    SB_CO_TRYV(Begin(s, std::move(id)));
    snapshot_.deleted = true;
    co_return snapshot_;
  }
  Task<sandbox::SnapshotTree> GetSnapshotTree(sandbox::Scope s, std::string id, int limit, bool asc) override {
    number = asc ? limit : -limit;
    SB_CO_TRYV(Begin(s, std::move(id)));
    co_return sandbox::SnapshotTree{{snapshot_, {snapshot_}}, {{snapshot_, {}}}, "snap_1"};
  }
  Task<sandbox::DriveView> MakeDrive(sandbox::Scope s, std::string name, sandbox::DriveSpec spec) override {
    number = static_cast<int64_t>(spec.max_size_bytes.value_or(0));
    SB_CO_TRYV(Begin(s, name));
    drive_.created = std::exchange(drive_.drive.name, name) != name;
    co_return drive_;
  }
  Task<sandbox::Page<sandbox::DriveView>> ListDrives(sandbox::Scope s, sandbox::ListQuery query) override {
    list = std::move(query);
    SB_CO_TRYV(Begin(s, ""));
    co_return sandbox::Page<sandbox::DriveView>{{drive_}, "cursor-2"};
  }
  Task<sandbox::DriveView> DeleteDrive(sandbox::Scope s, std::string name) override {
    SB_CO_TRYV(Begin(s, std::move(name)));
    co_return drive_;
  }
  Task<sandbox::Page<store::Session>> ListSessions(sandbox::Scope s, sandbox::ListQuery query) override {
    list = std::move(query);
    SB_CO_TRYV(Begin(s, ""));
    co_return sandbox::Page<store::Session>{{session_}, "cursor-2"};
  }
  Task<store::Snapshot> VerifySnapshot(sandbox::Scope s, std::string id) override {
    SB_CO_TRYV(Begin(s, std::move(id)));
    snapshot_.damage = "changed /etc/passwd";
    co_return snapshot_;
  }
  Task<std::vector<store::Notice>> Notices(sandbox::Scope, std::string name) override {
    co_return std::vector<store::Notice>{{5, "team", "project", std::move(name), "it fell back"}};
  }
  Task<engine::LayerDiff> Diff(sandbox::Scope s, std::string before, std::string after) override {
    SB_CO_TRYV(Begin(s, before + ".." + after));
    co_return engine::LayerDiff{{{'M', 'f', 7, 5, "/etc/passwd"}, {'D', 'd', 0, 0, "/data"}}, false};
  }
  Task<store::Sandbox> Promote(sandbox::Scope s, std::string from, std::optional<std::string> into) override {
    SB_CO_TRYV(Begin(s, from + ">" + into.value_or("")));
    co_return sandbox_;
  }
  Task<sandbox::RaceOutcome> Race(sandbox::Scope s, sandbox::RaceSpec spec) override {
    SB_CO_TRYV(Begin(s, spec.source + " " + spec.command + " " + spec.score + " " + spec.keep));
    sandbox::RaceOutcome race;
    race.racers.resize(static_cast<size_t>(spec.count));
    race.racers[0].exit_code = 0;
    race.winner = 0;
    co_return race;
  }
  Task<sandbox::SandboxView> GetSession(sandbox::Scope s, std::string id) override { co_return View(s, std::move(id)); }
  Task<sandbox::SandboxView> Stop(sandbox::Scope s, std::string id) override {
    session_.status = sandbox_.status = store::Status::kStopped;
    session_.stopped_at = 3500;
    co_return View(s, std::move(id));
  }
  Task<store::Session> ExtendTimeout(sandbox::Scope s, std::string id, int64_t ms) override {
    number = ms;
    SB_CO_TRYV(Begin(s, std::move(id)));
    co_return session_;
  }
  Task<store::Session> SetNetwork(sandbox::Scope s, std::string id, egress::NetworkPolicy policy) override {
    SB_CO_TRYV(Begin(s, std::move(id)));
    std::string mode(egress::ModeName(policy.mode));
    session_.network = store::NetworkPolicyRow{mode, R"({"mode":")" + mode + "\"}", ""};
    co_return session_;
  }
  Task<sandbox::NetworkView> Network(sandbox::Scope s, std::string id) override {
    SB_CO_TRYV(Begin(s, std::move(id)));
    egress::Denial denial;
    denial.kind = "dns";
    denial.target = "example.com";
    denial.host = "example.com";
    egress::Attempt attempt;
    attempt.kind = "tls";
    attempt.host = "example.com";
    attempt.port = 443;
    co_return sandbox::NetworkView{.policy = egress::DenyAll(), .denials = {denial}, .attempts = {attempt}};
  }
  Task<sandbox::StartedCommand> StartCommand(sandbox::Scope s, std::string id, sandbox::CommandSpec spec) override {
    command_spec = std::move(spec);
    SB_CO_TRYV(Begin(s, std::move(id)));
    sandbox::StartedCommand started;
    started.command = command_;
    if (command_spec->follow_from_start) started.log = std::make_unique<Reader>(this);
    co_return started;
  }
  Task<store::Command> GetCommand(sandbox::Scope s, std::string, std::string id) override {
    SB_CO_TRYV(Begin(s, std::move(id)));
    co_return command_;
  }
  Task<store::Command> WaitCommand(sandbox::Scope s, std::string, std::string id) override {
    SB_CO_TRYV(Begin(s, std::move(id)));
    struct Counted {
      int* n;
      explicit Counted(int* p) : n(p) { ++*n; }
      ~Counted() { --*n; }
    } counted(&waits);
    while (!command_.exit_code) {
      SB_CO_TRYV(co_await changed_.Wait());
    }
    co_return command_;
  }
  Task<std::vector<store::Command>> ListCommands(sandbox::Scope s, std::string id) override {
    SB_CO_TRYV(Begin(s, std::move(id)));
    co_return std::vector<store::Command>{command_};
  }
  Task<store::Command> KillCommand(sandbox::Scope s, std::string, std::string id, int signal) override {
    number = signal;
    SB_CO_TRYV(Begin(s, std::move(id)));
    co_return command_;
  }
  Task<std::unique_ptr<sandbox::LogReader>> OpenLog(sandbox::Scope s, std::string, std::string id) override {
    SB_CO_TRYV(Begin(s, std::move(id)));
    co_return std::make_unique<Reader>(this);
  }
  Task<std::unique_ptr<engine::FileStream>> ReadFile(sandbox::Scope s, std::string, std::string path,
                                                     std::optional<std::string> dir) override {
    cwd = std::move(dir);
    SB_CO_TRYV(Begin(s, std::move(path)));
    co_return std::make_unique<File>(this);
  }
  Task<> WriteTar(sandbox::Scope s, std::string id, std::optional<std::string> dir,
                  engine::ByteSource* source) override {
    cwd = std::move(dir);
    SB_CO_TRYV(Begin(s, std::move(id)));
    while (true) {
      SB_CO_TRY(std::string piece, co_await source->Next());
      if (piece.empty()) break;
      written += piece;
    }
    co_return Result<>{};
  }
  Task<> MakeDir(sandbox::Scope s, std::string, std::string path, std::optional<std::string> dir,
                 bool recursive) override {
    cwd = std::move(dir);
    flag = recursive;
    co_return Begin(s, std::move(path));
  }
  Task<std::unique_ptr<sandbox::CodeStream>> RunCode(sandbox::Scope s, std::string name,
                                                     sandbox::CodeSpec spec) override {
    code_spec = std::move(spec);
    SB_CO_TRYV(Begin(s, std::move(name)));
    co_return std::make_unique<Cell>(this);
  }
  Task<sandbox::CodeContextInfo> CreateContext(sandbox::Scope s, std::string name,
                                               sandbox::CodeContextSpec spec) override {
    SB_CO_TRYV(Begin(s, std::move(name)));
    context_.language = spec.language;
    co_return context_;
  }
  Task<std::vector<sandbox::CodeContextInfo>> ListContexts(sandbox::Scope s, std::string name) override {
    SB_CO_TRYV(Begin(s, std::move(name)));
    co_return std::vector<sandbox::CodeContextInfo>{context_};
  }
  Task<sandbox::CodeContextInfo> ChangeContext(sandbox::Scope s, std::string, std::string id,
                                               sandbox::ContextChange change) override {
    number = static_cast<int64_t>(change);
    SB_CO_TRYV(Begin(s, std::move(id)));
    co_return context_;
  }
  Task<sandbox::RouteTarget> FindRoute(std::string subdomain) override {
    for (const store::PortRoute& route : sandbox_.routes)
      if (route.subdomain == subdomain) {
        co_return sandbox::RouteTarget{sandbox_.team, sandbox_.project, sandbox_.name, session_.id, route};
      }
    co_return Fail(Code::kNotFound, "no such route");
  }
  Task<sandbox::DialledPort> DialPort(sandbox::Scope s, std::string id, int port) override {
    number = port;
    SB_CO_TRYV(Begin(s, std::move(id)));
    if (!dial) co_return Fail(Code::kUnavailable, "nothing listens");
    co_return sandbox::DialledPort{dial(), traffic};
  }
  Task<store::PortRoute> SetRouteToken(sandbox::Scope s, std::string name, int port,
                                       std::optional<std::string> token) override {
    SB_CO_TRYV(Begin(s, std::move(name)));
    for (store::PortRoute& route : sandbox_.routes) {
      if (route.port != port) continue;
      route.token = token ? sandbox::Sha256Hex(*token) : "";
      co_return route;
    }
    co_return Fail(Code::kNotFound, "no such port");
  }
  Task<store::Token> CheckToken(std::string presented) override {
    auto it = tokens.find(presented);
    if (it == tokens.end()) co_return Fail(Code::kUnauthenticated, "unknown token");
    co_return it->second;
  }

 private:
  class Reader : public sandbox::LogReader {
   public:
    explicit Reader(FakeService* service) : service_(service) { ++service_->readers; }
    ~Reader() override { --service_->readers; }
    Task<sandbox::LogChunk> Next() override {
      while (at_ == service_->log_.size()) {
        SB_CO_TRYV(co_await service_->changed_.Wait());
      }
      Step step = service_->log_[at_++];
      if (auto* error = std::get_if<Error>(&step)) co_return std::unexpected(*error);
      co_return std::get<sandbox::LogChunk>(std::move(step));
    }
    bool caught_up() const override { return at_ == service_->log_.size(); }

   private:
    FakeService* service_;
    size_t at_ = 0;
  };

  // Says what Say() was given, as lines, until an empty one.
  class Cell : public sandbox::CodeStream {
   public:
    explicit Cell(FakeService* service) : reader_(service) {}
    Task<std::string> Next() override {
      SB_CO_TRY(sandbox::LogChunk chunk, co_await reader_.Next());
      co_return std::move(chunk.bytes);
    }

   private:
    Reader reader_;
  };

  class File : public engine::FileStream {
   public:
    explicit File(FakeService* service) : service_(service) { ++service_->files; }
    ~File() override { --service_->files; }
    Task<std::string> Next() override {
      if (at_ < service_->pieces.size()) co_return service_->pieces[at_++];
      if (service_->read_ends_with) co_return std::unexpected(*service_->read_ends_with);
      co_return std::string();
    }

   private:
    FakeService* service_;
    size_t at_ = 0;
  };

  Result<> Begin(const sandbox::Scope& s, std::string what) {
    ++calls;
    scope = s;
    asked = std::move(what);
    if (fail) return std::unexpected(*fail);
    return {};
  }
  Result<sandbox::SandboxView> View(const sandbox::Scope& s, std::string what) {
    SB_TRYV(Begin(s, std::move(what)));
    return sandbox::SandboxView{sandbox_, session_, false};
  }

  store::Sandbox sandbox_;
  store::Session session_;
  store::Command command_;
  store::Snapshot snapshot_;
  sandbox::DriveView drive_;
  sandbox::CodeContextInfo context_{"ctx_1", sandbox::CodeLanguage::kPython, "idle", 3, 1000, 2000};
  std::deque<Step> log_;
  Event changed_;
};

}  // namespace sandbar::api
