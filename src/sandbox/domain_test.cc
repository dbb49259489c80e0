// Sandboxes and sessions through their roles, over the fake engine.
#include <gmock/gmock.h>

#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using testing::HasSubstr;

TEST_F(DomainTest, CreateRunReadStop) {
  Boot();
  CreateSpec spec;
  spec.name = "demo";
  auto view = world.Create(spec);
  EXPECT_EQ(view.session.status, store::Status::kRunning);
  EXPECT_EQ(view.sandbox.status, store::Status::kRunning);
  EXPECT_EQ(view.sandbox.image, "vercel/sandbox/universal@sha256:universal");
  EXPECT_EQ(view.session.cwd, "/vercel");
  EXPECT_EQ(world.server->Info().running, 1U);

  auto command = world.Exec(view.session.id, World::Command({"echo", "hello", "world"}));
  EXPECT_FALSE(command.exit_code);
  auto done = world.Wait(view.session.id, command.id);
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(world.Log(view.session.id, command.id).out, "hello world\n");

  auto stopped = world.Run(world.sessions->Stop(world.scope, view.session.id));
  ASSERT_TRUE(stopped) << stopped.error().message;
  EXPECT_EQ(stopped->session.status, store::Status::kStopped);
  EXPECT_EQ(stopped->sandbox.status, store::Status::kStopped);
  EXPECT_EQ(stopped->session.stop_reason, "requested");
  EXPECT_TRUE(stopped->session.stopped_at);
  EXPECT_TRUE(stopped->session.cpu_ms);
  EXPECT_TRUE(world.host.ids().empty());
  EXPECT_EQ(world.server->Info().running, 0U);
  // Finished commands and their output stay readable.
  EXPECT_EQ(world.Wait(view.session.id, command.id).exit_code, 0);
  EXPECT_EQ(world.Log(view.session.id, command.id).out, "hello world\n");
}

TEST_F(DomainTest, RefusesDuplicateNamesPerProject) {
  Boot();
  CreateSpec spec;
  spec.name = "same";
  world.Create(spec);
  auto again = world.Run(world.sandboxes->Create(world.scope, spec));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kNameTaken);
  EXPECT_THAT(again.error().message, HasSubstr("same"));
  world.scope.project = "prj_b";
  world.Create(spec);
  EXPECT_EQ(world.host.ids().size(), 2U);
}

TEST_F(DomainTest, V1IsNamedLikeItsSessionAndUsesTheRuntime) {
  Boot();
  CreateSpec spec;
  spec.v1 = true;
  auto view = world.Create(spec);
  EXPECT_EQ(view.sandbox.name, view.session.id);
  EXPECT_FALSE(view.sandbox.persistent);
  EXPECT_EQ(view.session.cwd, "/vercel/sandbox");
  EXPECT_EQ(view.session.user, "vercel-sandbox");
}

TEST_F(DomainTest, ForeignIdsAnswerLikeUnknownOnes) {
  Boot();
  auto view = world.Create();
  auto unknown = world.Run(world.sessions->Get(world.scope, "sbx_nothing"));
  world.scope.project = "prj_other";
  auto foreign = world.Run(world.sessions->Get(world.scope, view.session.id));
  ASSERT_FALSE(unknown);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(unknown.error().code, Code::kNotFound);
  EXPECT_EQ(foreign.error().code, unknown.error().code);
  EXPECT_EQ(foreign.error().message, unknown.error().message);
  EXPECT_FALSE(world.Run(world.commands->Start(world.scope, view.session.id, World::Command({"true"}))));
  EXPECT_FALSE(world.Run(world.sessions->Stop(world.scope, view.session.id)));
  EXPECT_FALSE(world.Run(world.sandboxes->Delete(world.scope, view.sandbox.name, false)));
  world.scope.any_project = true;
  EXPECT_TRUE(world.Run(world.sessions->Get(world.scope, view.session.id)));
}

TEST_F(DomainTest, StoppedSessionsAnswerStopped) {
  Boot();
  CreateSpec spec;
  spec.persistent = false;
  auto view = world.Create(spec);
  ASSERT_TRUE(world.Run(world.sessions->Stop(world.scope, view.session.id)));
  auto again = world.Run(world.sessions->Stop(world.scope, view.session.id));
  ASSERT_TRUE(again) << "stop is idempotent";
  EXPECT_EQ(again->session.status, store::Status::kStopped);
  auto run = world.Run(world.commands->Start(world.scope, view.session.id, World::Command({"true"})));
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kStopped);
  auto extended = world.Run(world.sessions->ExtendTimeout(world.scope, view.session.id, 5000));
  EXPECT_EQ(extended.error().code, Code::kStopped);
  auto resumed = world.Run(world.sandboxes->Get(world.scope, view.sandbox.name, true));
  ASSERT_FALSE(resumed);
  EXPECT_EQ(resumed.error().code, Code::kSnapshotMissing);
  EXPECT_THAT(resumed.error().message, HasSubstr("no snapshot to resume from"));
  auto got = world.Run(world.sandboxes->Get(world.scope, view.sandbox.name, false));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->session.id, view.session.id);
}

TEST_F(DomainTest, DeleteStopsAndFreesTheName) {
  Boot();
  CreateSpec spec;
  spec.name = "again";
  auto first = world.Create(spec);
  auto command = world.Exec(first.session.id, World::Command({"echo", "x"}));
  world.Wait(first.session.id, command.id);
  EXPECT_TRUE(std::filesystem::exists(world.config.data_dir + "/logs/" + first.session.id));
  auto deleted = world.Run(world.sandboxes->Delete(world.scope, "again", false));
  ASSERT_TRUE(deleted) << deleted.error().message;
  EXPECT_EQ(deleted->status, store::Status::kStopped);
  EXPECT_TRUE(world.host.ids().empty());
  EXPECT_FALSE(std::filesystem::exists(world.config.data_dir + "/logs/" + first.session.id));
  auto got = world.Run(world.sandboxes->Get(world.scope, "again", false));
  EXPECT_EQ(got.error().code, Code::kNotFound);
  EXPECT_EQ(world.Run(world.sandboxes->Delete(world.scope, "again", false)).error().code, Code::kNotFound);
  EXPECT_NE(world.Create(spec).session.id, first.session.id);
}

TEST_F(DomainTest, ADeletionAnswersWithTheTotals) {
  Boot();
  auto view = world.Create({.name = "worked"});
  world.Machine(view)->usage.cpu_ns = 5'000'000;
  auto deleted = world.Run(world.sandboxes->Delete(world.scope, "worked", false));
  ASSERT_TRUE(deleted) << deleted.error().message;
  EXPECT_EQ(deleted->total_cpu_ms, 5U);
  EXPECT_EQ(world.Run(world.sessions->Get(world.scope, view.session.id)).error().code, Code::kNotFound);
}

TEST_F(DomainTest, TwoDeletionsAndAStopAtOnce) {
  Boot();
  for (bool stop_first : {true, false}) {
    auto view = world.Create({.name = "box"});
    const size_t kept = world.host.snapshots.size();
    std::optional<Result<SandboxView>> stopped;
    std::vector<Result<store::Sandbox>> deleted;
    auto stop = [&] {
      asio::co_spawn(world.ioc.get_executor(), world.sessions->Stop(world.scope, view.session.id),
                     [&](std::exception_ptr, Result<SandboxView> r) { stopped = std::move(r); });
    };
    auto remove = [&] {
      asio::co_spawn(world.ioc.get_executor(), world.sandboxes->Delete(world.scope, "box", false),
                     [&](std::exception_ptr, Result<store::Sandbox> r) { deleted.push_back(std::move(r)); });
    };
    auto stopping = [&] {
      return world.Run(world.sessions->Get(world.scope, view.session.id))->session.status == store::Status::kStopping;
    };
    world.host.faults.destroy = engine::FakeFault::kFail;
    stop_first ? stop() : remove();
    ASSERT_TRUE(world.Until(stopping));
    stop_first ? remove() : stop();
    remove();
    world.host.faults = {};
    ASSERT_TRUE(world.Until([&] { return stopped && deleted.size() == 2; }));
    EXPECT_TRUE(deleted[0] && deleted[1]);
    EXPECT_EQ(world.Run(world.sandboxes->Get(world.scope, "box", false)).error().code, Code::kNotFound);
    EXPECT_TRUE(world.host.ids().empty());
    // What the stop kept goes with the sandbox.
    EXPECT_TRUE(world.Until([&] { return world.host.snapshots.size() == kept; }));
  }
  world.Create({.name = "box"});
  ASSERT_TRUE(world.Restart());
  EXPECT_TRUE(world.Run(world.sandboxes->Get(world.scope, "box", false)));
}

TEST_F(DomainTest, ADeletionThatTakesItsTimeIsSeen) {
  Boot();
  auto view = world.Create({.name = "busy"});
  world.Exec(view.session.id, World::Command({"sleep", "600000"}));
  world.host.faults.destroy = engine::FakeFault::kHang;
  asio::co_spawn(world.ioc.get_executor(), world.sandboxes->Delete(world.scope, "busy", false),
                 [](std::exception_ptr, const Result<store::Sandbox>& r) { EXPECT_FALSE(r); });
  auto stopping = [&] {
    return world.Run(world.sandboxes->Get(world.scope, "busy", false))->sandbox.status == store::Status::kStopping;
  };
  EXPECT_TRUE(world.Until(stopping));
  world.Crash();
  world.host.faults = {};
}

TEST_F(DomainTest, ATakenNameLeavesNoMachine) {
  world.config.max_running = 2;
  Boot();
  CreateSpec spec;
  spec.name = "taken";
  auto first = world.Create(spec);
  for (int i = 0; i < 3; ++i) {
    auto second = world.Run(world.sandboxes->Create(world.scope, spec));
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::kNameTaken);
    EXPECT_EQ(world.host.ids(), std::vector<std::string>{first.session.machine_id});
  }
  // Whatever becomes of its boot.
  world.host.faults.boot = engine::FakeFault::kFail;
  EXPECT_EQ(world.Run(world.sandboxes->Create(world.scope, spec)).error().code, Code::kNameTaken);
  world.host.faults = {};
  EXPECT_EQ(world.Run(world.sandboxes->Get(world.scope, "taken", false))->session.id, first.session.id);
  spec.name = "free";
  world.Create(spec);
  EXPECT_EQ(world.host.ids().size(), 2U);
}

TEST_F(DomainTest, FailedCreatesLeaveNothing) {
  Boot();
  CreateSpec spec;
  spec.name = "phoenix";
  using engine::FakeFault;
  for (FakeFault* fault : {&world.host.faults.boot, &world.host.faults.configure, &world.host.faults.connect,
                           &world.host.faults.set_deadline}) {
    *fault = FakeFault::kFail;
    auto r = world.Run(world.sandboxes->Create(world.scope, spec));
    *fault = FakeFault::kNone;
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().code, Code::kUnavailable) << r.error().message;
    EXPECT_TRUE(world.host.ids().empty());
    EXPECT_EQ(world.Run(world.sandboxes->Get(world.scope, "phoenix", false)).error().code, Code::kNotFound);
    EXPECT_EQ(world.server->Info().running, 0U);
  }
  world.Create(spec);
}

TEST_F(DomainTest, ACreateWhoseMachineWillNotDieKeepsItsRowUntilTheNextStart) {
  Boot();
  CreateSpec spec;
  spec.name = "zombie";
  world.host.faults.connect = engine::FakeFault::kFail;
  world.host.faults.destroy = engine::FakeFault::kFail;
  ASSERT_FALSE(world.Run(world.sandboxes->Create(world.scope, spec)));
  auto row = world.Run(world.sandboxes->Get(world.scope, "zombie", false));
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_EQ(row->session.status, store::Status::kFailed);
  EXPECT_EQ(world.host.ids().size(), 1U);
  world.host.faults = {};
  ASSERT_TRUE(world.Restart());
  EXPECT_TRUE(world.host.ids().empty());
}

TEST_F(DomainTest, LimitsAreNamed) {
  Boot();
  world.scope.project = "p";
  CreateSpec spec;
  spec.resources.vcpus = 64;
  auto r = world.Run(world.sandboxes->Create(world.scope, spec));
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::kBadRequest);
  EXPECT_THAT(r.error().message, HasSubstr("limit of 8"));
  EXPECT_EQ(world.host.boots, 0);
}

TEST_F(DomainTest, AtMostSoManyRun) {
  world.config.max_running = 2;
  Boot();
  world.Create();
  auto second = world.Create();
  auto third = world.Run(world.sandboxes->Create(world.scope, {}));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::kTooMany);
  ASSERT_TRUE(world.Run(world.sessions->Stop(world.scope, second.session.id)));
  world.Create();
}

TEST_F(DomainTest, ConcurrentStopsShareOneAndRefuseCommands) {
  Boot();
  auto view = world.Create();
  const auto& id = view.session.id;
  world.Exec(id, World::Command({"stubborn"}));
  std::vector<store::Status> seen;
  for (int i = 0; i < 3; ++i) {
    asio::co_spawn(world.ioc.get_executor(), world.sessions->Stop(world.scope, id),
                   [&seen](std::exception_ptr, Result<SandboxView> r) {
                     ASSERT_TRUE(r);
                     seen.push_back(r->session.status);
                   });
  }
  ASSERT_TRUE(world.Until([&] {
    auto r = world.Run(world.sessions->Get(world.scope, id));
    return r && r->session.status == store::Status::kStopping;
  }));
  auto late = world.Run(world.commands->Start(world.scope, id, World::Command({"true"})));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kStopping);
  // A resume waits for the stop to end, then goes on from what that kept.
  auto resumed = world.Run(world.sandboxes->Get(world.scope, view.sandbox.name, true));
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_NE(resumed->session.id, id);
  EXPECT_FALSE(resumed->session.source_snapshot.empty());
  ASSERT_TRUE(world.Until([&] { return seen.size() == 3; }));
  for (auto status : seen) EXPECT_EQ(status, store::Status::kStopped);
}

TEST_F(DomainTest, TimeoutStopsGracefully) {
  Boot();
  CreateSpec spec;
  spec.timeout_ms = 1000;
  auto view = world.Create(spec);
  EXPECT_GE(world.Machine(view)->deadline.count(), 1000) << "the spawner has a deadline too";
  auto command = world.Exec(view.session.id, World::Command({"sleep"}));
  EXPECT_EQ(world.Wait(view.session.id, command.id).exit_code, 143);
  ASSERT_TRUE(world.Until([&] { return world.host.ids().empty(); }));
  ASSERT_TRUE(world.Until([&] {
    return world.Run(world.sessions->Get(world.scope, view.session.id))->session.status == store::Status::kStopped;
  }));
  auto after = world.Run(world.sessions->Get(world.scope, view.session.id));
  EXPECT_EQ(after->session.stop_reason, "timeout");
  EXPECT_GE(*after->session.stopped_at - *after->session.started_at, 1000);
}

TEST_F(DomainTest, ExtendTimeoutIsExactAndBounded) {
  Boot();
  CreateSpec spec;
  spec.timeout_ms = 1000;
  auto view = world.Create(spec);
  auto longer = world.Run(world.sessions->ExtendTimeout(world.scope, view.session.id, 60000));
  ASSERT_TRUE(longer) << longer.error().message;
  EXPECT_EQ(longer->timeout_ms, 61000);
  EXPECT_GT(world.Machine(view)->deadline.count(), 50000);
  auto sandbox = world.Run(world.sandboxes->Get(world.scope, view.sandbox.name, false));
  EXPECT_EQ(sandbox->sandbox.timeout_ms, 1000) << "the record's own timeout stays";
  auto days = world.Run(world.sessions->ExtendTimeout(world.scope, view.session.id, 5LL * 86400000));
  ASSERT_FALSE(days);
  EXPECT_EQ(days.error().code, Code::kTimeoutInvalid);
  EXPECT_EQ(world.Run(world.sessions->ExtendTimeout(world.scope, view.session.id, 999)).error().code,
            Code::kBadRequest);
  // The clock follows: it would have stopped by now.
  auto command = world.Exec(view.session.id, World::Command({"sleep", "1200"}));
  EXPECT_EQ(world.Wait(view.session.id, command.id).exit_code, 0);
}

TEST_F(DomainTest, NetworkModes) {
  Boot();
  CreateSpec spec;
  spec.network = egress::NetworkPolicy{.mode = egress::EgressMode::kDenyAll};
  auto view = world.Create(spec);
  EXPECT_EQ(view.session.network->mode, "deny-all");
  auto open =
      world.Run(world.sessions->SetNetwork(world.scope, view.session.id, {.mode = egress::EgressMode::kAllowAll}));
  ASSERT_TRUE(open);
  EXPECT_EQ(open->network->mode, "allow-all");
  EXPECT_TRUE(world.Run(world.sessions->Network(world.scope, view.session.id)));
}

TEST_F(DomainTest, MachineThatEndsByItselfFailsTheSession) {
  Boot();
  auto view = world.Create();
  const auto& id = view.session.id;
  auto sleeper = world.Exec(id, World::Command({"sleep"}));
  // Whether this call is still answered is a race that nobody has to win.
  world.Run(world.commands->Start(world.scope, id, World::Command({"die"})));
  EXPECT_EQ(world.Wait(id, sleeper.id).exit_code, 137) << "never reported";
  ASSERT_TRUE(world.Until([&] { return world.host.ids().empty(); }));
  ASSERT_TRUE(world.Until(
      [&] { return world.Run(world.sessions->Get(world.scope, id))->session.status == store::Status::kFailed; }));
  auto after = world.Run(world.sessions->Get(world.scope, id));
  EXPECT_THAT(after->session.stop_reason, HasSubstr("machine lost"));
  EXPECT_EQ(after->sandbox.status, store::Status::kFailed);
}

TEST_F(DomainTest, AnAgentThatBreaksTheProtocolLosesItsMachine) {
  Boot();
  auto view = world.Create();
  world.Machine(view)->agent.SendGarbage();
  ASSERT_TRUE(world.Until([&] {
    return world.Run(world.sessions->Get(world.scope, view.session.id))->session.status == store::Status::kFailed;
  }));
  EXPECT_TRUE(world.host.ids().empty());
}

TEST_F(DomainTest, ABrokenProtocolIsTheReasonAndFilesAreKept) {
  Boot();
  CreateSpec spec;
  spec.name = "kept";
  spec.persistent = true;
  auto view = world.Create(spec);
  world.Machine(view)->agent.SendGarbage();
  ASSERT_TRUE(world.Until([&] {
    return world.Run(world.sessions->Get(world.scope, view.session.id))->session.status == store::Status::kFailed;
  }));
  auto after = world.Run(world.sessions->Get(world.scope, view.session.id));
  EXPECT_THAT(after->session.stop_reason, HasSubstr("the agent broke the protocol"));
  ASSERT_EQ(world.host.snapshots.size(), 1U) << "as with any crash of a machine";
  EXPECT_EQ(after->sandbox.current_snapshot, *world.host.snapshots.begin());
}

TEST_F(DomainTest, UpdateListAndTotals) {
  Boot();
  CreateSpec spec;
  spec.name = "one";
  spec.tags = {{"k", "v"}};
  auto view = world.Create(spec);
  spec.name = "two";
  spec.tags.clear();
  world.Create(spec);
  UpdateSpec update;
  update.timeout_ms = 7000;
  update.resources.vcpus = 4;
  update.env = std::map<std::string, std::string>{{"NEW", "1"}};
  update.tags = std::map<std::string, std::string>{{"k", "v"}, {"z", "y"}};
  auto updated = world.Run(world.sandboxes->Update(world.scope, "one", update));
  ASSERT_TRUE(updated) << updated.error().message;
  EXPECT_EQ(updated->memory_mb, 8192);
  EXPECT_EQ(updated->status, store::Status::kRunning);
  auto env = world.Exec(view.session.id, World::Command({"env"}));
  EXPECT_THAT(world.Log(view.session.id, env.id).out, HasSubstr("NEW=1\n"));
  update.resources.vcpus = 3;
  EXPECT_EQ(world.Run(world.sandboxes->Update(world.scope, "one", update)).error().code, Code::kBadRequest);

  ListQuery query;
  query.limit = 1;
  auto page = world.Run(world.sandboxes->List(world.scope, query));
  ASSERT_TRUE(page);
  ASSERT_EQ(page->items.size(), 1U);
  EXPECT_EQ(page->items[0].name, "two");
  query.cursor = page->next;
  page = world.Run(world.sandboxes->List(world.scope, query));
  EXPECT_EQ(page->items.at(0).name, "one");
  EXPECT_EQ(page->next, "");
  query = {};
  query.tag = {"z", "y"};
  page = world.Run(world.sandboxes->List(world.scope, query));
  ASSERT_EQ(page->items.size(), 1U);
  EXPECT_EQ(page->items[0].name, "one");
  query = {};
  query.name_prefix = "t";
  EXPECT_EQ(world.Run(world.sandboxes->List(world.scope, query)).error().code, Code::kBadRequest);
  query.sort_by = "name";
  EXPECT_EQ(world.Run(world.sandboxes->List(world.scope, query))->items.size(), 1U);
  query = {};
  query.limit = 51;
  EXPECT_EQ(world.Run(world.sandboxes->List(world.scope, query)).error().code, Code::kBadRequest);

  world.Machine(view)->usage.cpu_ns = 42000000;
  auto stopped = world.Run(world.sessions->Stop(world.scope, view.session.id));
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->session.cpu_ms, 42U);
  EXPECT_EQ(stopped->sandbox.total_cpu_ms, 42U);
  auto sessions = world.Run(world.sessions->List(world.scope, {}));
  ASSERT_TRUE(sessions);
  EXPECT_EQ(sessions->items.size(), 2U);
  query = {};
  query.sandbox = "one";
  EXPECT_EQ(world.Run(world.sessions->List(world.scope, query))->items.size(), 1U);
}

TEST_F(DomainTest, TheFirstKeyIsMadeOnceAndChecked) {
  Boot();
  std::ifstream in(world.config.data_dir + "/token");
  std::string token;
  std::getline(in, token);
  EXPECT_EQ(token.find('.'), std::string::npos);
  struct stat st{};
  ASSERT_EQ(::stat((world.config.data_dir + "/token").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600U);
  auto good = world.Run(world.keys->Identify(token));
  ASSERT_TRUE(good);
  EXPECT_EQ(good->principal.team, "*");
  EXPECT_EQ(good->principal.role, KeyRole::kAdmin);
  for (const std::string& wrong : {std::string(), token + "x", token.substr(1), std::string(4096, 'a')}) {
    auto bad = world.Run(world.keys->Identify(wrong));
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().code, Code::kUnauthenticated);
  }
  ASSERT_TRUE(world.Restart());
  EXPECT_EQ(world.Run(world.keys->Identify(token))->principal.key_id, good->principal.key_id);
}

}  // namespace
}  // namespace sandbar::sandbox
