// What a restart finds: every point at which a server can die.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>

#include "base/ids.h"
#include "sandbox/sandboxes/pending_deletion.h"
#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using engine::FakeFault;
using testing::HasSubstr;

class RecoveryTest : public DomainTest {
 protected:
  void Restart() {
    auto r = world.Restart();
    ASSERT_TRUE(r) << r.error().message;
  }
  store::Session Row(const SandboxView& view) {
    auto r = world.Run(world.sessions->Get(world.scope, view.session.id));
    EXPECT_TRUE(r) << (r ? "" : r.error().message);
    return r ? r->session : store::Session{};
  }
  bool BecomesStatus(const SandboxView& view, store::Status status) {
    return world.Until([&] { return Row(view).status == status; });
  }
  // Starts a create that will not come back, and lets it get as far as it can.
  void HangingCreate(FakeFault* where, const std::string& name) {
    *where = FakeFault::kHang;
    CreateSpec spec;
    spec.name = name;
    asio::co_spawn(world.ioc.get_executor(), world.sandboxes->Create(world.scope, spec),
                   [](std::exception_ptr, const Result<SandboxView>& r) { EXPECT_FALSE(r); });
    ASSERT_TRUE(world.Until([&] { return world.Run(world.sandboxes->Get(world.scope, name, false)).has_value(); }));
    for (int i = 0; i < 20; ++i) world.ioc.poll_one();
  }
};

TEST_F(RecoveryTest, RunningSandboxesAndCommandsSurvive) {
  Boot();
  auto view = world.Create();
  const auto& id = view.session.id;
  auto quick = world.Exec(id, World::Command({"echo", "before"}));
  world.Wait(id, quick.id);
  auto sleeper = world.Exec(id, World::Command({"sleep", "300"}));
  auto talker = world.Exec(id, World::Command({"echo", "unread"}));
  Restart();
  EXPECT_EQ(world.server->Info().running, 1U);
  EXPECT_EQ(Row(view).status, store::Status::kRunning);
  EXPECT_EQ(world.Wait(id, sleeper.id).exit_code, 0);
  EXPECT_EQ(world.Wait(id, talker.id).exit_code, 0);
  EXPECT_EQ(world.Log(id, talker.id).out, "unread\n");
  EXPECT_EQ(world.Log(id, quick.id).out, "before\n");
  auto after = world.Exec(id, World::Command({"echo", "after"}));
  EXPECT_EQ(world.Log(id, after.id).out, "after\n");
  EXPECT_GT(world.Machine(view)->deadline.count(), 0);
  ASSERT_TRUE(world.Until([&] { return world.Machine(view)->agent.unacked_exits() == 0; }));
}

TEST_F(RecoveryTest, OutputIsCompleteAcrossManyRestarts) {
  Boot();
  auto view = world.Create();
  constexpr uint64_t kTotal = 7 << 20;
  auto command = world.Exec(view.session.id, World::Command({"spew", std::to_string(kTotal)}));
  for (int i = 0; i < 8; ++i) {
    for (int n = 0; n < 6; ++n) world.Step();
    Restart();
  }
  EXPECT_EQ(world.Wait(view.session.id, command.id).exit_code, 0);
  auto text = world.Log(view.session.id, command.id);
  EXPECT_EQ(text.gap, 0U);
  ASSERT_EQ(text.out.size(), kTotal);
  bool same = true;
  for (uint64_t i = 0; i < kTotal; ++i) same = same && text.out[i] == engine::FakeSpewByte(i);
  EXPECT_TRUE(same);
}

TEST_F(RecoveryTest, ExitsWhileTheServerIsDownAreNotLost) {
  Boot();
  auto view = world.Create();
  auto command = world.Exec(view.session.id, World::Command({"sleep", "600000"}));
  world.Crash();
  world.Machine(view)->agent.Terminate();
  ASSERT_TRUE(world.Until([&] { return world.Machine(view)->agent.unacked_exits() == 1; }));
  Restart();
  EXPECT_EQ(world.Wait(view.session.id, command.id).exit_code, 128 + SIGTERM);
  ASSERT_TRUE(world.Until([&] { return world.Machine(view)->agent.unacked_exits() == 0; }));
}

TEST_F(RecoveryTest, ACommandThatNeverReachedTheAgentIsLost) {
  Boot();
  auto view = world.Create();
  store::Command row;
  row.id = "cmd_ghost";
  row.session = view.session.id;
  row.name = "true";
  row.started_at = NowMs();
  ASSERT_TRUE(world.store->InsertCommand(row));
  Restart();
  EXPECT_EQ(world.Wait(view.session.id, "cmd_ghost").exit_code, 137);
  EXPECT_EQ(world.Log(view.session.id, "cmd_ghost").out, "");
}

TEST_F(RecoveryTest, CreatesThatNeverFinishedAreUndone) {
  auto& faults = world.host.faults;
  for (FakeFault* step : {&faults.boot, &faults.configure, &faults.connect, &faults.set_deadline}) {
    Boot();
    HangingCreate(step, "half");
    world.Crash();
    faults = {};
    Restart();
    EXPECT_EQ(world.Run(world.sandboxes->Get(world.scope, "half", false)).error().code, Code::kNotFound);
    EXPECT_TRUE(world.host.ids().empty());
    CreateSpec spec;
    spec.name = "half";
    auto view = world.Create(spec);
    ASSERT_TRUE(world.Run(world.sandboxes->Delete(world.scope, "half", false)));
    world.Crash();
  }
}

TEST_F(RecoveryTest, AHalfDoneDeleteIsFinished) {
  Boot();
  CreateSpec spec;
  spec.name = "leaving";
  auto view = world.Create(spec);
  world.host.faults.destroy = FakeFault::kHang;
  asio::co_spawn(world.ioc.get_executor(), world.sandboxes->Delete(world.scope, "leaving", false),
                 [](std::exception_ptr, const Result<store::Sandbox>& r) { EXPECT_FALSE(r); });
  ASSERT_TRUE(BecomesStatus(view, store::Status::kStopping));
  world.Crash();
  ASSERT_EQ((*world.store->FindSession(view.session.id))->status, store::Status::kRunning) << "pending is enough";
  world.host.faults = {};
  Restart();
  EXPECT_TRUE(world.Until([&] {
    auto gone = world.Run(world.sandboxes->Get(world.scope, "leaving", false));
    return !gone && gone.error().code == Code::kNotFound;
  }));
  EXPECT_TRUE(world.host.ids().empty());
  EXPECT_TRUE(world.host.snapshots.empty());
  // A new one of that name is not touched by later starts.
  world.Create(spec);
  Restart();
  EXPECT_TRUE(world.Run(world.sandboxes->Get(world.scope, "leaving", false)));
}

TEST_F(RecoveryTest, WhatIsMarkedForDeletionIsEndedAndNotKept) {
  Boot();
  auto alive = world.Create({.name = "alive"});
  auto ended = world.Create({.name = "ended"});
  auto late = world.Create({.name = "late", .timeout_ms = 1000});
  auto stays = world.Create({.name = "stays"});
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1100);
  world.Crash();
  for (const auto& view : {alive, ended, late})
    ASSERT_TRUE(AddPendingDeletion(*world.store, {store::KeyOf(view.sandbox), false, view.sandbox.created_at}));
  // That of an earlier one of the same name, left behind.
  ASSERT_TRUE(AddPendingDeletion(*world.store, {store::KeyOf(stays.sandbox), false, stays.sandbox.created_at - 1}));
  world.Await(world.host.EndMachine(ended.session.machine_id));
  ASSERT_TRUE(world.Until([&] { return std::chrono::steady_clock::now() > until; }));
  Restart();
  auto own = world.OpenStore();
  ASSERT_TRUE(world.Until([&] { return PendingDeletions(*own)->empty(); }));
  for (const char* name : {"alive", "ended", "late"})
    EXPECT_EQ(world.Run(world.sandboxes->Get(world.scope, name, false)).error().code, Code::kNotFound) << name;
  EXPECT_EQ(Row(stays).status, store::Status::kRunning);
  EXPECT_EQ(world.host.ids(), std::vector<std::string>{stays.session.machine_id});
  EXPECT_TRUE(world.host.snapshots.empty());
}

TEST_F(RecoveryTest, AHalfDoneStopIsFinished) {
  Boot();
  auto view = world.Create();
  auto command = world.Exec(view.session.id, World::Command({"sleep"}));
  world.host.faults.destroy = FakeFault::kHang;
  asio::co_spawn(world.ioc.get_executor(), world.sessions->Stop(world.scope, view.session.id),
                 [](std::exception_ptr, const Result<SandboxView>& r) { EXPECT_FALSE(r); });
  ASSERT_TRUE(BecomesStatus(view, store::Status::kStopping));
  EXPECT_EQ(world.Wait(view.session.id, command.id).exit_code, 143);
  world.Crash();
  world.host.faults = {};
  EXPECT_EQ(world.host.ids().size(), 1U);
  Restart();
  ASSERT_TRUE(BecomesStatus(view, store::Status::kStopped));
  EXPECT_EQ(Row(view).stop_reason, "requested");
  EXPECT_TRUE(world.host.ids().empty());
  auto r = world.Run(world.commands->Start(world.scope, view.session.id, World::Command({"true"})));
  EXPECT_EQ(r.error().code, Code::kStopped);
}

TEST_F(RecoveryTest, AMachineThatIsGoneAbortsItsSession) {
  Boot();
  auto view = world.Create();
  auto command = world.Exec(view.session.id, World::Command({"sleep"}));
  world.Crash();
  world.Await(world.host.Close());
  Restart();
  ASSERT_TRUE(BecomesStatus(view, store::Status::kAborted));
  EXPECT_THAT(Row(view).stop_reason, HasSubstr("machine lost"));
  EXPECT_TRUE(Row(view).aborted_at);
  EXPECT_EQ(world.Wait(view.session.id, command.id).exit_code, 137);
  EXPECT_EQ(world.Run(world.sandboxes->Get(world.scope, view.sandbox.name, false))->sandbox.status,
            store::Status::kAborted);
}

TEST_F(RecoveryTest, AMachineThatEndedMeanwhileIsCleanedUp) {
  Boot();
  auto view = world.Create();
  world.Machine(view)->usage.cpu_ns = 5000000;
  world.Crash();
  world.Await(world.host.EndMachine(view.session.machine_id));
  Restart();
  ASSERT_TRUE(BecomesStatus(view, store::Status::kFailed));
  EXPECT_EQ(Row(view).cpu_ms, 5U);
  EXPECT_TRUE(world.host.ids().empty());
}

TEST_F(RecoveryTest, AnAgentThatDoesNotAnswerDoesNotHoldUpTheOthers) {
  world.config.agent_timeout = std::chrono::milliseconds(100);
  Boot();
  auto dead = world.Create();
  auto well = world.Create();
  world.Crash();
  world.Machine(dead)->state = engine::MachineState::kBooted;  // alive by its state, but nobody to connect to
  Restart();
  EXPECT_EQ(Row(well).status, store::Status::kRunning);
  ASSERT_TRUE(BecomesStatus(dead, store::Status::kFailed));
  EXPECT_EQ(world.host.ids().size(), 1U);
}

TEST_F(RecoveryTest, ADeadlineThatPassedMeanwhileStopsNow) {
  Boot();
  CreateSpec spec;
  spec.timeout_ms = 1000;
  auto view = world.Create(spec);
  auto command = world.Exec(view.session.id, World::Command({"sleep"}));
  world.Crash();
  auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1100);
  ASSERT_TRUE(world.Until([&] { return std::chrono::steady_clock::now() > until; }));
  Restart();
  ASSERT_TRUE(BecomesStatus(view, store::Status::kStopped));
  EXPECT_EQ(Row(view).stop_reason, "timeout");
  EXPECT_EQ(world.Wait(view.session.id, command.id).exit_code, 143);
  EXPECT_TRUE(world.host.ids().empty());
}

TEST_F(RecoveryTest, TheClockGoesOnFromTheStartOfTheSession) {
  Boot();
  CreateSpec spec;
  spec.timeout_ms = 1000;
  auto view = world.Create(spec);
  Restart();
  ASSERT_TRUE(BecomesStatus(view, store::Status::kStopped));
  EXPECT_EQ(Row(view).stop_reason, "timeout");
}

TEST_F(RecoveryTest, PolicyIsBackAtOnce) {
  Boot();
  CreateSpec spec;
  spec.network = egress::NetworkPolicy{.mode = egress::EgressMode::kAllowAll};
  auto view = world.Create(spec);
  ASSERT_TRUE(
      world.Run(world.sessions->SetNetwork(world.scope, view.session.id, {.mode = egress::EgressMode::kDenyAll})));
  Restart();
  EXPECT_EQ(Row(view).network->mode, "deny-all");
}

TEST_F(RecoveryTest, MachinesWithoutARowArePausedAndLeft) {
  Boot();
  auto view = world.Create();
  world.Crash();
  ASSERT_TRUE(world.store->DeleteSandbox(store::KeyOf(view.sandbox)));
  Restart();
  ASSERT_EQ(world.host.ids().size(), 1U);
  EXPECT_TRUE(world.Machine(view)->paused);
}

TEST_F(RecoveryTest, MachinesWithoutARowThatNeverStartedAreDestroyed) {
  Boot();
  HangingCreate(&world.host.faults.configure, "half");
  const auto half = world.Run(world.sandboxes->Get(world.scope, "half", false));
  ASSERT_TRUE(half);
  world.Crash();
  world.host.faults = {};
  ASSERT_EQ(world.host.ids().size(), 1U);
  // As if the record had not been written when the server died.
  ASSERT_TRUE(world.store->DeleteSandbox(store::KeyOf(half->sandbox)));
  Restart();
  EXPECT_TRUE(world.host.ids().empty());
}

TEST_F(RecoveryTest, PoolsAreDestroyedNeverAdopted) {
  PoolTarget target;
  target.image = "vercel/sandbox/universal:latest";
  target.count = 2;
  world.config.pools = {target};
  Boot();
  ASSERT_TRUE(world.Until([&] { return world.host.ids().size() == 2; }));
  auto before = world.host.ids();
  auto view = world.Create();
  EXPECT_THAT(before, testing::Contains(view.session.machine_id)) << "claimed, not booted";
  auto command = world.Exec(view.session.id, World::Command({"echo", "pooled"}));
  EXPECT_EQ(world.Log(view.session.id, command.id).out, "pooled\n");
  EXPECT_GT(world.Machine(view)->deadline.count(), 0);
  ASSERT_TRUE(world.Until([&] { return world.host.ids().size() == 3; })) << "refilled";
  world.Crash();
  world.config.pools.clear();
  Restart();
  EXPECT_EQ(world.host.ids(), std::vector<std::string>{view.session.machine_id});
  EXPECT_EQ(Row(view).status, store::Status::kRunning);
  EXPECT_TRUE(world.store->PoolMembers()->empty());
}

TEST_F(RecoveryTest, DeadPoolMembersAreReplacedAndOtherSizesBooted) {
  PoolTarget target;
  target.runtime = "node24";
  target.count = 1;
  world.config.pools = {target};
  Boot();
  ASSERT_TRUE(world.Until([&] { return world.host.ids().size() == 1; }));
  auto first = world.host.ids().front();
  world.Await(world.host.EndMachine(first));
  ASSERT_TRUE(world.Until([&] { return world.host.ids().size() == 1 && world.host.ids().front() != first; }));
  CreateSpec spec;
  spec.runtime = "node24";
  spec.resources.vcpus = 4;
  auto big = world.Create(spec);
  EXPECT_EQ(big.session.machine_id.substr(0, 2), "m-");
  ASSERT_TRUE(world.Run(world.domain->StopAll()));
  EXPECT_TRUE(world.host.ids().empty());
}

TEST_F(RecoveryTest, MemoryThatNobodySpeaksOfIsRemoved) {
  Boot();
  auto view = world.Create({.name = "box"});
  auto stopped = world.Run(world.sessions->Stop(world.scope, view.session.id));
  ASSERT_TRUE(stopped) << stopped.error().message;
  const std::string snapshot = world.Run(world.sandboxes->Get(world.scope, "box", false))->sandbox.current_snapshot;
  auto keep = [](store::Snapshot& s) -> Result<> {
    s.memory = "kept";
    return {};
  };
  world.host.memories = {snapshot};
  // Died before it was forgotten: it is still there to go on with.
  ASSERT_TRUE(world.OpenStore()->EditSnapshot(snapshot, keep));
  ASSERT_TRUE(world.OpenStore()->SetNote("spent/" + snapshot, "1"));
  Restart();
  ASSERT_TRUE(world.Until([&] { return world.OpenStore()->Notes("spent/")->empty(); }));
  EXPECT_TRUE(world.host.memories.contains(snapshot));
  // Died after that.
  world.host.faults.remove_memory = FakeFault::kFail;
  ASSERT_TRUE(world.Run(world.sandboxes->Resume(world.scope, "box", ResumeFrom::kDisk)));
  EXPECT_TRUE((*world.OpenStore()->FindSnapshot(snapshot))->memory.empty());
  EXPECT_TRUE(world.host.memories.contains(snapshot));
  world.host.faults.remove_memory = FakeFault::kNone;
  Restart();
  EXPECT_TRUE(world.Until([&] { return world.host.memories.empty() && world.OpenStore()->Notes("spent/")->empty(); }));
}

}  // namespace
}  // namespace sandbar::sandbox
