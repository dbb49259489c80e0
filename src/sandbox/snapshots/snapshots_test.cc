// Snapshots of the domain: what a stop leaves, what a resume stands on, and every point at which a server can die.
#include <gmock/gmock.h>

#include "base/ids.h"
#include "sandbox/snapshots/retention.h"
#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using engine::FakeFault;
using testing::ElementsAre;
using testing::IsEmpty;

class SnapshotsTest : public DomainTest {
 protected:
  SandboxView Stop(const SandboxView& view) {
    auto r = world.Run(world.sessions->Stop(world.scope, view.session.id));
    EXPECT_TRUE(r) << (r ? "" : r.error().message);
    return r ? *r : SandboxView{};
  }
  SandboxView Resume(const std::string& name) {
    auto r = world.Run(world.sandboxes->Get(world.scope, name, true));
    EXPECT_TRUE(r) << (r ? "" : r.error().message);
    return r ? *r : SandboxView{};
  }
  store::Sandbox Record(const std::string& name) {
    auto r = world.Run(world.sandboxes->Get(world.scope, name, false));
    EXPECT_TRUE(r) << (r ? "" : r.error().message);
    return r ? r->sandbox : store::Sandbox{};
  }
  SandboxView Named(const std::string& name) {
    CreateSpec spec;
    spec.name = name;
    return world.Create(spec);
  }
};

TEST_F(SnapshotsTest, StopKeepsAndResumeStandsOnIt) {
  Boot();
  auto view = Named("box");
  auto stopped = Stop(view);
  ASSERT_TRUE(stopped.snapshot);
  EXPECT_EQ(stopped.sandbox.current_snapshot, stopped.snapshot->id);
  EXPECT_FALSE(stopped.snapshot->manual);
  EXPECT_TRUE(world.host.snapshots.contains(stopped.snapshot->id));
  auto back = Resume("box");
  EXPECT_TRUE(back.resumed);
  EXPECT_EQ(back.session.source_snapshot, stopped.snapshot->id);
  EXPECT_EQ(back.sandbox.current_session, back.session.id);
  EXPECT_THAT(world.Machine(back)->rootfs.snapshots, ElementsAre(stopped.snapshot->id));
  EXPECT_FALSE(Resume("box").resumed) << "it runs";
  auto second = Stop(back);
  EXPECT_EQ(second.snapshot->parent, stopped.snapshot->id);
  EXPECT_THAT(second.snapshot->snapshot_layers, ElementsAre(second.snapshot->id, stopped.snapshot->id));
}

TEST_F(SnapshotsTest, ASnapshotBringsItsImageWhateverTheRequestNames) {
  Boot();
  CreateSpec first;
  first.name = "box";
  first.runtime = "node24";
  auto stopped = Stop(world.Create(first));
  for (const auto& [runtime, image] : std::vector<std::pair<std::optional<std::string>, std::optional<std::string>>>{
           {"python3.13", std::nullopt}, {std::nullopt, "no/such-image"}, {"node24", "vercel/sandbox/universal"}}) {
    CreateSpec spec;
    spec.source_snapshot = stopped.snapshot->id;
    spec.runtime = runtime;
    spec.image = image;
    auto view = world.Create(spec);
    EXPECT_EQ(view.sandbox.runtime, "node24");
    EXPECT_EQ(view.sandbox.image, stopped.sandbox.image) << "the answer says what it really got";
    EXPECT_EQ(view.session.cwd, "/vercel/sandbox");
  }
}

TEST_F(SnapshotsTest, CrashBetweenThePublishAndItsRecord) {
  Boot();
  auto view = Named("box");
  // As far as a server got that had ended the machine and died before it could say so.
  world.Crash();
  auto row = **world.store->FindSession(view.session.id);
  row.status = store::Status::kStopping;
  row.snapshot = "snap_half";
  ASSERT_TRUE(world.store->SaveSession(row, nullptr));
  world.Await(world.host.EndMachine(row.machine_id));
  auto machine = world.Run(world.engine->Attach(row.machine_id));
  ASSERT_TRUE(machine);
  ASSERT_TRUE(world.Run((*machine)->DestroyKeeping("snap_half")));
  ASSERT_TRUE(world.Start());
  ASSERT_TRUE(world.Until([&] { return Record("box").status == store::Status::kStopped; }));
  EXPECT_EQ(Record("box").current_snapshot, "snap_half");
  EXPECT_THAT(world.Machine(Resume("box"))->rootfs.snapshots, ElementsAre("snap_half"));
}

TEST_F(SnapshotsTest, CrashBeforeThePublish) {
  Boot();
  auto view = Named("box");
  world.host.faults.destroy = FakeFault::kHang;
  asio::co_spawn(world.ioc.get_executor(), world.sessions->Stop(world.scope, view.session.id),
                 [](std::exception_ptr, const Result<SandboxView>& r) { EXPECT_FALSE(r); });
  ASSERT_TRUE(world.Until([&] { return Record("box").status == store::Status::kStopping; }));
  world.Crash();
  world.host.faults = {};
  ASSERT_TRUE(world.Start());
  ASSERT_TRUE(world.Until([&] { return Record("box").status == store::Status::kStopped; }));
  const std::string snapshot = Record("box").current_snapshot;
  EXPECT_TRUE(world.host.snapshots.contains(snapshot));
}

TEST_F(SnapshotsTest, AResumeDuringAStopStandsOnWhatThatKeeps) {
  Boot();
  auto view = Named("box");
  const std::string old = Stop(view).sandbox.current_snapshot;
  view = Resume("box");
  std::optional<Result<SandboxView>> stopped, resumed;
  world.host.faults.destroy = FakeFault::kFail;
  asio::co_spawn(world.ioc.get_executor(), world.sessions->Stop(world.scope, view.session.id),
                 [&](std::exception_ptr, Result<SandboxView> r) { stopped = std::move(r); });
  ASSERT_TRUE(world.Until([&] { return Record("box").status == store::Status::kStopping; }));
  asio::co_spawn(world.ioc.get_executor(), world.sandboxes->Get(world.scope, "box", true),
                 [&](std::exception_ptr, Result<SandboxView> r) { resumed = std::move(r); });
  for (int i = 0; i < 50; ++i) world.Step();
  EXPECT_FALSE(resumed);
  world.host.faults = {};
  ASSERT_TRUE(world.Until([&] { return stopped && resumed; }));
  ASSERT_TRUE(*stopped && *resumed) << resumed->error().message;
  EXPECT_NE((*stopped)->snapshot->id, old);
  EXPECT_EQ((*resumed)->session.source_snapshot, (*stopped)->snapshot->id);
}

TEST_F(SnapshotsTest, AFailedResumeLeavesTheSandboxAsItWas) {
  Boot();
  auto view = Named("box");
  const std::string snapshot = Stop(view).sandbox.current_snapshot;
  world.host.faults.boot = FakeFault::kFail;
  EXPECT_FALSE(world.Run(world.sandboxes->Get(world.scope, "box", true)));
  EXPECT_EQ(Record("box").current_session, view.session.id);
  EXPECT_EQ(Record("box").current_snapshot, snapshot);
  world.host.faults = {};
  EXPECT_TRUE(Resume("box").resumed);
}

TEST_F(SnapshotsTest, AResumeCutByACrashIsUndone) {
  Boot();
  auto view = Named("box");
  Stop(view);
  world.host.faults.configure = FakeFault::kHang;
  asio::co_spawn(world.ioc.get_executor(), world.sandboxes->Get(world.scope, "box", true),
                 [](std::exception_ptr, const Result<SandboxView>& r) { EXPECT_FALSE(r); });
  ASSERT_TRUE(world.Until([&] { return world.host.boots == 2; }));
  world.Crash();
  world.host.faults = {};
  ASSERT_TRUE(world.Start());
  EXPECT_EQ(Record("box").current_session, view.session.id);
  EXPECT_THAT(world.host.ids(), IsEmpty());
  EXPECT_TRUE(Resume("box").resumed);
}

TEST_F(SnapshotsTest, WhenKeepingFailsNothingIsGivenUp) {
  Boot();
  auto view = Named("box");
  world.host.faults.destroy = FakeFault::kFail;
  std::optional<Result<SandboxView>> stopped;
  asio::co_spawn(world.ioc.get_executor(), world.sessions->Stop(world.scope, view.session.id),
                 [&](std::exception_ptr, Result<SandboxView> r) { stopped = std::move(r); });
  ASSERT_TRUE(world.Until([&] { return Record("box").status == store::Status::kStopping; }));
  for (int i = 0; i < 50; ++i) world.Step();
  EXPECT_FALSE(stopped);
  world.host.faults = {};
  ASSERT_TRUE(world.Until([&] { return stopped.has_value(); }));
  ASSERT_TRUE(*stopped) << stopped->error().message;
  EXPECT_TRUE((*stopped)->snapshot);
}

TEST_F(SnapshotsTest, DeletedOnesGoFromDiskWhenNothingStandsOnThem) {
  Boot();
  auto view = Named("box");
  const std::string first = Stop(view).snapshot->id;
  const std::string second = Stop(Resume("box")).snapshot->id;
  ASSERT_TRUE(world.Run(world.snapshots->Delete(world.scope, first)));
  auto running = Resume("box");
  for (int i = 0; i < 20; ++i) world.ioc.poll_one();
  EXPECT_TRUE(world.host.snapshots.contains(first)) << "the second one stands on it";
  ASSERT_TRUE(world.Run(world.snapshots->Delete(world.scope, second)));
  for (int i = 0; i < 20; ++i) world.ioc.poll_one();
  EXPECT_TRUE(world.host.snapshots.contains(first)) << "a machine runs on it";
  auto resumed = world.Run(world.sandboxes->Delete(world.scope, "box", false));
  ASSERT_TRUE(resumed);
  EXPECT_TRUE(world.Until([&] { return world.host.snapshots.empty(); }));
  auto tombstone = world.Run(world.snapshots->Get(world.scope, first));
  ASSERT_TRUE(tombstone);
  EXPECT_TRUE(tombstone->deleted);
}

TEST_F(SnapshotsTest, LayersThatNoRecordKnowsAreLeftAlone) {
  world.host.snapshots.insert("snap_stranger");
  Boot();
  auto view = Named("box");
  ASSERT_TRUE(world.Run(world.snapshots->Delete(world.scope, Stop(view).snapshot->id)));
  EXPECT_TRUE(world.Until([&] { return world.host.snapshots.size() == 1; }));
  EXPECT_TRUE(world.host.snapshots.contains("snap_stranger"));
}

TEST_F(SnapshotsTest, ExpiryCountsFromTheLastUse) {
  Boot();
  auto view = Named("box");
  const std::string id = Stop(view).snapshot->id;
  auto own = world.OpenStore();
  auto age = [&](int64_t ms) {
    return own->EditSnapshot(id, [ms](store::Snapshot& s) -> Result<> {
      s.last_used_at -= ms;
      return {};
    });
  };
  ASSERT_TRUE(age(kDefaultSnapshotExpirationMs - 60000));
  Stop(Resume("box"));  // uses it
  ASSERT_TRUE(world.Run(world.snapshots->Get(world.scope, id))->expires_at() >
              NowMs() + kDefaultSnapshotExpirationMs - 60000);
  ASSERT_TRUE(age(kDefaultSnapshotExpirationMs + 1));
  ASSERT_TRUE(ExpireSnapshots(*own, NowMs()));
  EXPECT_TRUE(world.Run(world.snapshots->Get(world.scope, id))->deleted);
  // The head is expired: gone, not "never was".
  const std::string head = Record("box").current_snapshot;
  ASSERT_TRUE(world.Run(world.snapshots->Delete(world.scope, head)));
  EXPECT_EQ(world.Run(world.sandboxes->Get(world.scope, "box", true)).error().code, Code::kSnapshotGone);
}

TEST_F(SnapshotsTest, LongChainsAreFlattened) {
  world.config.flatten_at = 3;
  Boot();
  auto view = Named("box");
  for (int i = 0; i < 4; ++i) {
    Stop(view);
    view = Resume("box");
  }
  auto id = Stop(view).snapshot->id;
  ASSERT_TRUE(
      world.Until([&] { return world.Run(world.snapshots->Get(world.scope, id))->snapshot_layers.size() == 1; }));
  EXPECT_THAT(world.Machine(Resume("box"))->rootfs.snapshots, ElementsAre("flat_" + id));
}

TEST_F(SnapshotsTest, ForeignSnapshotsAnswerAsUnknown) {
  Boot();
  auto id = Stop(Named("box")).snapshot->id;
  Scope other = world.scope;
  other.project = "prj_b";
  EXPECT_EQ(world.Run(world.snapshots->Get(other, id)).error().code, Code::kNotFound);
  EXPECT_EQ(world.Run(world.snapshots->Delete(other, id)).error().code, Code::kNotFound);
  CreateSpec spec;
  spec.source_snapshot = id;
  EXPECT_EQ(world.Run(world.sandboxes->Create(other, spec)).error().code, Code::kSnapshotGone);
  UpdateSpec roll_back;
  roll_back.current_snapshot = id;
  EXPECT_EQ(world.Run(world.sandboxes->Update(other, "box", roll_back)).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace sandbar::sandbox
