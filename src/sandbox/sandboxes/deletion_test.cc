// What a deleted sandbox takes along, and what stays because somebody made it.
#include <gmock/gmock.h>

#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class DeletionTest : public DomainTest {
 protected:
  SandboxView Named(const std::string& name) {
    CreateSpec spec;
    spec.name = name;
    return world.Create(spec);
  }
  std::string Stop(const SandboxView& view) {
    auto stopped = world.Run(world.sessions->Stop(world.scope, view.session.id));
    EXPECT_TRUE(stopped) << stopped.error().message;
    return stopped->snapshot->id;
  }
  SandboxView Resume(const std::string& name) {
    auto view = world.Run(world.sandboxes->Get(world.scope, name, true));
    EXPECT_TRUE(view) << view.error().message;
    return *view;
  }
  std::string ByHand(const SandboxView& view) {
    auto taken = world.Run(world.snapshots->Take(world.scope, view.session.id, std::nullopt));
    EXPECT_TRUE(taken) << taken.error().message;
    return taken->snapshot.id;
  }
  SandboxView Fork(const std::string& from, const std::string& name) {
    ForkSpec spec;
    spec.name = name;
    auto view = world.Run(world.sandboxes->Fork(world.scope, from, spec));
    EXPECT_TRUE(view) << view.error().message;
    return *view;
  }
  void GiveMemory(const std::string& snapshot) {
    auto keep = [](store::Snapshot& s) -> Result<> {
      s.memory = "kept";
      s.contexts = "sealed";
      return {};
    };
    ASSERT_TRUE(world.OpenStore()->EditSnapshot(snapshot, keep));
    world.host.memories.insert(snapshot);
  }
  void Delete(const std::string& name, bool orphans = false) {
    auto deleted = world.Run(world.sandboxes->Delete(world.scope, name, orphans));
    EXPECT_TRUE(deleted) << deleted.error().message;
  }
  bool Gone(const std::string& snapshot) { return world.Run(world.snapshots->Get(world.scope, snapshot))->deleted; }
};

TEST_F(DeletionTest, AutomaticSnapshotsAndEveryMemoryGoAndThoseMadeByHandStay) {
  Boot();
  const std::string automatic = Stop(Named("box"));
  const std::string manual = ByHand(Resume("box"));
  GiveMemory(automatic);
  GiveMemory(manual);
  Delete("box");
  EXPECT_TRUE(Gone(automatic));
  EXPECT_FALSE(Gone(manual));
  // Before the answer, not with the next round of tidying.
  EXPECT_THAT(world.host.memories, IsEmpty());
  auto row = *world.OpenStore()->FindSnapshot(manual);
  EXPECT_EQ(row->memory + row->contexts, "");
  // The files of the first are part of the second.
  EXPECT_TRUE(world.host.snapshots.contains(automatic));
  ASSERT_TRUE(world.Run(world.snapshots->Delete(world.scope, manual)));
  EXPECT_TRUE(world.Until([&] { return world.host.snapshots.empty(); }));
}

TEST_F(DeletionTest, WithOrphansThoseMadeByHandGoToo) {
  Boot();
  const std::string manual = ByHand(Named("box"));
  Delete("box", true);
  EXPECT_TRUE(Gone(manual));
  EXPECT_TRUE(world.Until([&] { return world.host.snapshots.empty(); }));
}

TEST_F(DeletionTest, AMemoryGoesWithItsSnapshotWhoeverDeletesThat) {
  Boot();
  const std::string first = Stop(Named("box"));
  const std::string second = Stop(Resume("box"));
  GiveMemory(first);
  // Its layer stays on disk: the second snapshot stands on it.
  ASSERT_TRUE(world.Run(world.snapshots->Delete(world.scope, first)));
  EXPECT_THAT(world.host.memories, IsEmpty());
  EXPECT_FALSE(Gone(second));
}

TEST_F(DeletionTest, WhatAnotherSandboxBeginsFromStays) {
  Boot();
  const std::string shared = Stop(Named("box"));
  ASSERT_FALSE(Stop(Fork("box", "other")).empty());
  UpdateSpec back;
  back.current_snapshot = shared;
  ASSERT_TRUE(world.Run(world.sandboxes->Update(world.scope, "other", back)));
  Delete("box");
  EXPECT_FALSE(Gone(shared));
  EXPECT_EQ(Resume("other").session.source_snapshot, shared);
  Delete("other");
  EXPECT_TRUE(Gone(shared)) << "its own sandbox is gone, too";
  EXPECT_TRUE(world.Until([&] { return world.host.snapshots.empty(); }));
}

TEST_F(DeletionTest, ASandboxTakesAlongWhatItWasPromotedFrom) {
  Boot();
  Stop(Named("box"));
  Fork("box", "fork");
  ASSERT_TRUE(world.Run(world.races->Promote(world.scope, "fork", std::nullopt)));
  const std::string promoted = Resume("fork").session.source_snapshot;
  EXPECT_FALSE((*world.OpenStore()->FindSnapshot(promoted))->manual) << "nobody asked for a snapshot";
  Delete("fork");
  EXPECT_FALSE(Gone(promoted)) << "box begins from it";
  // Neither is it its head any more.
  Stop(Resume("box"));
  Delete("box");
  EXPECT_TRUE(Gone(promoted));
  EXPECT_TRUE(world.Until([&] { return world.host.snapshots.empty(); }));
}

TEST_F(DeletionTest, AForkLeavesWhatWasMadeByHandAlone) {
  Boot();
  const std::string manual = ByHand(Named("box"));
  Stop(Fork("box", "fork"));
  Delete("box");
  Delete("fork", true);
  EXPECT_FALSE(Gone(manual)) << "it is neither the fork's own nor an orphan of it";
}

TEST_F(DeletionTest, NoNoticeStays) {
  Boot();
  auto view = Named("box");
  store::Notice notice;
  notice.at = 1;
  notice.team = world.scope.team;
  notice.project = world.scope.project;
  notice.sandbox = "box";
  notice.text = "something of it";
  ASSERT_TRUE(world.OpenStore()->AddNotice(notice));
  notice.sandbox = "other";
  ASSERT_TRUE(world.OpenStore()->AddNotice(notice));
  Delete("box");
  EXPECT_THAT(*world.Run(world.sandboxes->Notices(world.scope, "box")), IsEmpty());
  EXPECT_EQ(world.Run(world.sandboxes->Notices(world.scope, "other"))->size(), 1U);
}

}  // namespace
}  // namespace sandbar::sandbox
