// Layers on disk: durable, checked, damaged, lost; and what snapshots beside each other can do.
#include <gmock/gmock.h>

#include "base/ids.h"
#include "sandbox/sandboxes/pending_deletion.h"
#include "sandbox/snapshots/layer_records.h"
#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DurabilityTest : public DomainTest {
 protected:
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
  Result<SandboxView> Resume(const std::string& name) {
    return world.Run(world.sandboxes->Get(world.scope, name, true));
  }
  std::string Head(const std::string& name) {
    auto r = world.Run(world.sandboxes->Get(world.scope, name, false));
    return r ? r->sandbox.current_snapshot : r.error().message;
  }
  store::Snapshot Snapshot(const std::string& id) {
    auto r = world.Run(world.snapshots->Get(world.scope, id));
    EXPECT_TRUE(r) << r.error().message;
    return r ? *r : store::Snapshot{};
  }
  bool Durable(const std::string& id) {
    return world.Until([&] { return Snapshot(id).durable_at != 0; });
  }
  std::vector<store::Notice> Notices(const std::string& name) {
    auto r = world.Run(world.sandboxes->Notices(world.scope, name));
    return r ? *r : std::vector<store::Notice>{};
  }
};

TEST_F(DurabilityTest, AStopIsMadeDurableInTheBackground) {
  Boot();
  auto snapshot = Stop(Named("box"));
  ASSERT_TRUE(Durable(snapshot.id));
  auto row = Snapshot(snapshot.id);
  EXPECT_NE(row.verified_at, 0);
  EXPECT_EQ(row.size_bytes, 4096U) << "measured, not estimated";
  EXPECT_TRUE(world.host.manifests.contains(snapshot.id));
  EXPECT_EQ(world.host.checks, 0) << "it is not due yet";
}

TEST_F(DurabilityTest, VerifyFindsWhatChanged) {
  Boot();
  auto first = Stop(Named("box"));
  auto second = Stop(*Resume("box"));
  ASSERT_TRUE(Durable(second.id));
  world.host.damage[first.id] = "changed /etc/passwd";
  auto found = world.Run(world.snapshots->Verify(world.scope, second.id));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(found->damage, HasSubstr("layer " + first.id + ": changed /etc/passwd"));
  EXPECT_THAT(Snapshot(first.id).damage, HasSubstr("changed /etc/passwd")) << "whoever stands on it";
  // Mended: the layer is as it was again.
  world.host.damage.clear();
  found = world.Run(world.snapshots->Verify(world.scope, second.id));
  EXPECT_EQ(found->damage, "");
  EXPECT_EQ(Snapshot(first.id).damage, "");
}

TEST_F(DurabilityTest, TheScrubFindsIt) {
  world.config.scrub_every_ms = 20;
  Boot();
  auto snapshot = Stop(Named("box"));
  ASSERT_TRUE(Durable(snapshot.id));
  world.host.damage[snapshot.id] = "changed /bin/sh";
  ASSERT_TRUE(world.Until([&] { return !Snapshot(snapshot.id).damage.empty(); }));
}

TEST_F(DurabilityTest, StrictServesNothingDamaged) {
  world.config.verify_strict = true;
  Boot();
  auto snapshot = Stop(Named("box"));
  ASSERT_TRUE(Durable(snapshot.id));
  world.host.damage[snapshot.id] = "changed /bin/sh";
  auto refused = Resume("box");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kConflict) << "not the code upon which clients delete the sandbox";
  EXPECT_THAT(refused.error().message, HasSubstr("is damaged"));
  auto fork = world.Run(world.sandboxes->Fork(world.scope, "box", ForkSpec{}));
  EXPECT_FALSE(fork);
  world.host.damage.clear();
  EXPECT_TRUE(Resume("box"));
}

TEST_F(DurabilityTest, ALostSnapshotFallsBackWithANotice) {
  Boot();
  auto first = Stop(Named("box"));
  ASSERT_TRUE(Durable(first.id));
  auto second = Stop(*Resume("box"));
  EXPECT_EQ(Head("box"), second.id);
  ASSERT_TRUE(Durable(second.id));
  world.Crash();
  world.host.snapshots.erase(second.id);
  ASSERT_TRUE(world.Start());
  EXPECT_EQ(Head("box"), first.id);
  auto notices = Notices("box");
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_THAT(notices[0].text, HasSubstr("starts from " + first.id));
  // Told once, not at every start.
  world.Crash();
  ASSERT_TRUE(world.Start());
  EXPECT_EQ(Notices("box").size(), 1U);
  EXPECT_TRUE(Resume("box"));
}

TEST_F(DurabilityTest, AnUnreadableNewLayerFallsBackToo) {
  Boot();
  auto first = Stop(Named("box"));
  ASSERT_TRUE(Durable(first.id));
  auto running = Resume("box");
  // Its name is known when it stops: break whatever comes.
  auto second = world.Run(world.sessions->Stop(world.scope, running->session.id));
  ASSERT_TRUE(second);
  const std::string id = second->snapshot->id;
  ASSERT_TRUE(Durable(id));
  world.Crash();
  ASSERT_TRUE(world.store->DeleteLayer(id));
  world.host.damage[id] = "read: Input/output error";
  ASSERT_TRUE(world.Start());
  ASSERT_TRUE(world.Until([&] { return Head("box") == first.id; }));
  EXPECT_THAT(Notices("")[0].text, HasSubstr("Input/output error"));
}

TEST_F(DurabilityTest, ALayerThatCannotBeReadNowIsTriedAgainAndHoldsUpNobody) {
  world.host.faults.manifest[""] = Code::kUnavailable;
  Boot();
  auto first = Stop(Named("first"));
  ASSERT_TRUE(world.Until([&] { return world.host.scans[first.id] > 0; }));
  world.host.faults.manifest = {{first.id, Code::kUnavailable}};
  auto second = Stop(Named("second"));
  ASSERT_TRUE(Durable(second.id));
  EXPECT_EQ(Snapshot(first.id).durable_at, 0);
  world.host.faults.manifest.clear();
  ASSERT_TRUE(Durable(Stop(Named("third")).id));
  EXPECT_TRUE(Durable(first.id));
}

TEST_F(DurabilityTest, ALayerThatNeverCanBeReadIsNoDamageAndIsNotTriedAgain) {
  world.host.faults.manifest[""] = Code::kUnsupported;
  Boot();
  auto first = Stop(Named("first"));
  ASSERT_TRUE(world.Until([&] { return world.host.scans[first.id] > 0; }));
  world.host.faults.manifest.clear();
  ASSERT_TRUE(Durable(Stop(Named("second")).id));
  ASSERT_TRUE(Durable(Stop(Named("third")).id));
  EXPECT_EQ(world.host.scans[first.id], 1);
  EXPECT_EQ(Snapshot(first.id).durable_at, 0);
  EXPECT_EQ(Snapshot(first.id).damage, "");
  EXPECT_EQ(Head("first"), first.id);
  EXPECT_TRUE(Resume("first"));
}

TEST_F(DurabilityTest, ALongScanOfOneProjectHoldsUpNoOther) {
  Boot();
  world.host.slow_scans.insert("team_a/prj_a");
  auto slow = Stop(Named("slow"));
  ASSERT_TRUE(world.Until([&] { return world.host.scans[slow.id] == 1; }));
  auto behind = Stop(Named("behind"));
  const Scope first = world.scope;
  for (const char* project : {"prj_b", "prj_c", "prj_d", "prj_e", "prj_f"}) {
    world.scope.project = project;
    EXPECT_TRUE(Durable(Stop(Named(project)).id)) << project;
  }
  world.scope = first;
  EXPECT_EQ(Snapshot(slow.id).durable_at, 0);
  EXPECT_EQ(world.host.scans[behind.id], 0) << "of each project one at a time";
  world.host.slow_scans.clear();
  EXPECT_TRUE(Durable(slow.id));
  EXPECT_TRUE(Durable(behind.id));
}

TEST_F(DurabilityTest, DamagedChainsAreNotFlattened) {
  world.config.flatten_at = 2;
  Boot();
  auto first = Stop(Named("box"));
  ASSERT_TRUE(Durable(first.id));
  auto running = Resume("box");
  ASSERT_TRUE(running);
  world.host.damage[first.id] = "changed /bin/sh";
  auto second = Stop(*running);
  ASSERT_TRUE(world.Until([&] { return !Snapshot(second.id).damage.empty(); }));
  EXPECT_THAT(Snapshot(second.id).snapshot_layers, ElementsAre(second.id, first.id));
}

TEST_F(DurabilityTest, DiffNamesAndIds) {
  Boot();
  auto first = Stop(Named("box"));
  auto second = Stop(*Resume("box"));
  auto diff = world.Run(world.snapshots->Diff(world.scope, first.id, "box"));
  ASSERT_TRUE(diff) << diff.error().message;
  ASSERT_EQ(diff->changes.size(), 1U);
  EXPECT_EQ(diff->changes[0].path, "/" + second.id);
  auto base = world.Run(world.snapshots->Diff(world.scope, "", "box"));
  EXPECT_EQ(base->changes.size(), 2U);
  EXPECT_FALSE(world.Run(world.snapshots->Diff(world.scope, "nobody", "box")));
  Scope other = world.scope;
  other.project = "prj_other";
  EXPECT_EQ(world.Run(world.snapshots->Diff(other, first.id, second.id)).error().code, Code::kNotFound);
}

TEST_F(DurabilityTest, PromoteMakesAForkTheHeadOfItsSource) {
  Boot();
  auto first = Stop(Named("box"));
  ForkSpec spec;
  spec.name = "fork";
  auto fork = world.Run(world.sandboxes->Fork(world.scope, "box", spec));
  ASSERT_TRUE(fork) << fork.error().message;
  auto promoted = world.Run(world.races->Promote(world.scope, "fork", std::nullopt));
  ASSERT_TRUE(promoted) << promoted.error().message;
  EXPECT_EQ(promoted->name, "box");
  EXPECT_NE(promoted->current_snapshot, first.id);
  EXPECT_EQ(Head("box"), Head("fork"));
  EXPECT_EQ(Snapshot(Head("box")).parent, first.id);
  // The fork may go; what it made stays.
  ASSERT_TRUE(world.Run(world.sandboxes->Delete(world.scope, "fork", true)));
  EXPECT_TRUE(Resume("box"));
  Stop(Named("alone"));
  auto refused = world.Run(world.races->Promote(world.scope, "alone", std::nullopt));
  EXPECT_EQ(refused.error().code, Code::kBadRequest) << "it is nobody's fork";
}

TEST_F(DurabilityTest, ARunningTargetIsNotPromotedInto) {
  Boot();
  Stop(Named("box"));
  ForkSpec spec;
  spec.name = "fork";
  ASSERT_TRUE(world.Run(world.sandboxes->Fork(world.scope, "box", spec)));
  ASSERT_TRUE(Resume("box"));
  auto refused = world.Run(world.races->Promote(world.scope, "fork", std::nullopt));
  EXPECT_EQ(refused.error().code, Code::kConflict);
}

TEST_F(DurabilityTest, ForksOfARaceThatWasCutShortAreRemovedAtTheNextStart) {
  Boot();
  Stop(Named("box"));
  ForkSpec spec;
  spec.name = "race-abc";
  ASSERT_TRUE(world.Run(world.sandboxes->Fork(world.scope, "box", spec)));
  auto own = world.OpenStore();
  ASSERT_TRUE(AddPendingDeletion(*own, {{world.scope.team, world.scope.project, "race-abc"}, true}));
  world.Crash();
  ASSERT_TRUE(world.Start());
  ASSERT_TRUE(world.Until([&] { return Head("race-abc").starts_with("sandbox not found"); }));
  ASSERT_TRUE(world.Until([&] { return PendingDeletions(*own)->empty(); }));
  EXPECT_THAT(world.host.ids(), IsEmpty());
  EXPECT_TRUE(Resume("box"));
}

}  // namespace
}  // namespace sandbar::sandbox
