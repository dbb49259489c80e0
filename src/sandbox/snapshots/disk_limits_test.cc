// Whose bytes are on the disk, and what a sandbox's limit counts.
#include <gmock/gmock.h>

#include "sandbox/project_limits.h"
#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1ULL << 20;

class DiskTest : public DomainTest {
 protected:
  void BootCopying() {
    world.host.engines.front().copies_snapshots = true;
    world.config.disk_bytes = 1000 * kMiB;
    Boot();
  }
  SandboxView Named(const std::string& name) {
    CreateSpec spec;
    spec.name = name;
    return world.Create(spec);
  }
  store::Snapshot Stop(const SandboxView& view) {
    auto r = world.Run(world.sessions->Stop(world.scope, view.session.id));
    EXPECT_TRUE(r && r->snapshot) << (r ? "no snapshot" : r.error().message);
    return r && r->snapshot ? *r->snapshot : store::Snapshot{};
  }
  SandboxView Resume(const std::string& name) {
    auto r = world.Run(world.sandboxes->Get(world.scope, name, true));
    EXPECT_TRUE(r) << r.error().message;
    return r ? *r : SandboxView{};
  }
  bool Durable(const std::string& id) {
    return world.Until([&] {
      auto r = world.Run(world.snapshots->Get(world.scope, id));
      return r && r->durable_at != 0;
    });
  }
};

TEST_F(DiskTest, MachinesAndDrivesOfOneProjectHaveOneOwnerAndNoOtherProjectHasIt) {
  world.config.project.disk_bytes = 77 * kMiB;
  Boot();
  auto first = world.Create(), second = world.Create();
  const engine::Owner owner = world.Machine(first)->owner;
  EXPECT_NE(owner.project, 0U);
  EXPECT_LT(owner.project, 1ULL << 48);
  EXPECT_EQ(owner.bytes, 77 * kMiB);
  EXPECT_EQ(world.Machine(second)->owner.project, owner.project);
  auto drive = world.Run(world.drives->Make(world.scope, "cache", {}));
  ASSERT_TRUE(drive);
  EXPECT_EQ(world.host.owners.at(drive->drive.id).project, owner.project);
  world.scope.project = "prj_other";
  EXPECT_NE(world.Machine(world.Create())->owner.project, owner.project);
}

TEST_F(DiskTest, AMachineOfThePoolGetsItsOwnerWhenItIsClaimed) {
  world.config.pools = {{.runtime = "node24", .count = 1}};
  Boot();
  ASSERT_TRUE(world.Until([&] { return world.host.boots == 1 && !world.host.ids().empty(); }));
  EXPECT_EQ(world.host.Find(world.host.ids().front())->owner.project, 0U);
  CreateSpec spec;
  spec.runtime = "node24";
  auto view = world.Create(spec);
  EXPECT_NE(world.Machine(view)->owner.project, 0U);
}

TEST_F(DiskTest, ALimitCountsWhatTheSnapshotHolds) {
  world.host.layer_bytes = 200 * kMiB;
  BootCopying();
  auto view = Named("box");
  EXPECT_EQ(world.Machine(view)->rootfs.inherited_bytes, 0U);
  world.Machine(view)->usage.disk_bytes = 300 * kMiB;
  auto kept = Stop(view);
  ASSERT_TRUE(Durable(kept.id));
  auto back = Resume("box");
  const uint64_t inherited = world.Machine(back)->rootfs.inherited_bytes;
  EXPECT_GE(inherited, 200 * kMiB);
  EXPECT_LT(inherited, 201 * kMiB) << "what was found in it, not all that was ever written";
  // Whatever a session wrote counts for the next one.
  world.Machine(back)->usage.disk_bytes = 50 * kMiB;
  world.host.faults.manifest[""] = Code::kUnavailable;
  auto second = Stop(back);
  EXPECT_GE(second.size_bytes, 250 * kMiB);
  auto again = Resume("box");
  EXPECT_GE(world.Machine(again)->rootfs.inherited_bytes, 250 * kMiB) << "as long as nobody has looked, the most";
}

TEST_F(DiskTest, AGuessIsCorrectedWhenTheLayerWasRead) {
  world.host.layer_bytes = 100 * kMiB;
  world.host.faults.manifest[""] = Code::kUnavailable;
  BootCopying();
  auto view = Named("box");
  world.Machine(view)->usage.disk_bytes = 400 * kMiB;
  auto kept = Stop(view);
  auto back = Resume("box");
  EXPECT_GE(world.Machine(back)->rootfs.inherited_bytes, 400 * kMiB);
  world.host.faults.manifest.clear();
  ASSERT_TRUE(world.Run(world.snapshots->Verify(world.scope, kept.id)));
  EXPECT_TRUE(world.Until([&] { return world.Machine(back)->rootfs.inherited_bytes < 101 * kMiB; }));
  EXPECT_EQ(world.Machine(back)->limits.disk_bytes, 1000 * kMiB);
}

TEST_F(DiskTest, ACorrectionThatComesWhileASessionStartsIsNotLost) {
  world.host.layer_bytes = 100 * kMiB;
  world.host.faults.manifest[""] = Code::kUnavailable;
  BootCopying();
  auto view = Named("box");
  world.Machine(view)->usage.disk_bytes = 400 * kMiB;
  auto kept = Stop(view);
  world.host.slow_starts = true;
  std::optional<Result<SandboxView>> back;
  auto done = [&back](std::exception_ptr e, Result<SandboxView> r) {
    SB_CHECK(!e);
    back.emplace(std::move(r));
  };
  asio::co_spawn(world.ioc.get_executor(), world.sandboxes->Get(world.scope, "box", true), done);
  auto told = [&] {
    const auto ids = world.host.ids();
    return ids.empty() ? 0 : world.host.Find(ids.back())->rootfs.inherited_bytes;
  };
  ASSERT_TRUE(world.Until([&] { return told() >= 400 * kMiB; }));
  world.host.faults.manifest.clear();
  ASSERT_TRUE(world.Run(world.snapshots->Verify(world.scope, kept.id)));
  ASSERT_TRUE(Durable(kept.id));
  world.host.slow_starts = false;
  ASSERT_TRUE(world.Until([&] { return back.has_value(); }));
  ASSERT_TRUE(*back) << back->error().message;
  EXPECT_LT(world.Machine(**back)->rootfs.inherited_bytes, 101 * kMiB);
}

TEST_F(DiskTest, NothingNewStandsOnMoreThanItMayHold) {
  world.host.layer_bytes = 1200 * kMiB;
  BootCopying();
  auto view = Named("box");
  auto kept = Stop(view);
  ASSERT_TRUE(Durable(kept.id));
  CreateSpec spec;
  spec.source_snapshot = kept.id;
  auto made = world.Run(world.sandboxes->Create(world.scope, spec));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kBadRequest);
  EXPECT_THAT(made.error().message, HasSubstr("limits.disk_mb"));
  auto fork = world.Run(world.sandboxes->Fork(world.scope, "box", {}));
  ASSERT_FALSE(fork);
  EXPECT_EQ(fork.error().code, Code::kBadRequest);
  // What is there already can be resumed: to delete something.
  EXPECT_GE(world.Machine(Resume("box"))->rootfs.inherited_bytes, 1200 * kMiB);
}

}  // namespace
}  // namespace sandbar::sandbox
