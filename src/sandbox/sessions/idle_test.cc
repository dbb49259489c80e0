// Sandboxes that nobody uses, what is used, and how many there may be.
#include <gtest/gtest.h>

#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

class IdleTest : public DomainTest {
 protected:
  SandboxView Idle(const std::string& name, int64_t ms) {
    CreateSpec spec;
    spec.name = name;
    spec.idle_timeout_ms = ms;
    return world.Create(spec);
  }
  store::Session Row(const SandboxView& view) {
    auto r = world.Run(world.sessions->Get(world.scope, view.session.id));
    EXPECT_TRUE(r);
    return r ? r->session : store::Session{};
  }
  bool Stops(const SandboxView& view) {
    return world.Until([&] { return Row(view).status == store::Status::kStopped; });
  }
  void Pause(int ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    world.Until([end] { return std::chrono::steady_clock::now() > end; });
  }
};

TEST_F(IdleTest, StopsWithASnapshotAndSaysWhy) {
  Boot();
  auto view = Idle("box", 1000);
  EXPECT_EQ(view.sandbox.idle_timeout_ms, 1000);
  ASSERT_TRUE(Stops(view));
  EXPECT_EQ(Row(view).stop_reason, "idle timeout");
  EXPECT_FALSE(Row(view).snapshot.empty());
}

TEST_F(IdleTest, ADisposableOneIsNotKeptAsARecordEither) {
  Boot();
  auto make = [this](const std::string& name, bool persistent, const std::string& tag) {
    CreateSpec spec;
    spec.name = name;
    spec.persistent = persistent;
    spec.timeout_ms = 1000;
    if (!tag.empty()) spec.tags[kDisposableTag] = tag;
    return world.Create(spec);
  };
  auto there = [this](const char* name) {
    return world.Run(world.sandboxes->Get(world.scope, name, false)).has_value();
  };
  std::vector<SandboxView> views = {make("plain", false, ""), make("other-value", false, "0"), make("kept", true, "1"),
                                    make("gone", false, "1")};
  for (const SandboxView& view : views) ASSERT_TRUE(Stops(view)) << view.sandbox.name;
  EXPECT_TRUE(there("gone"));
  Pause(1100);
  // A delete has the house tidied.
  make("any", false, "");
  ASSERT_TRUE(world.Run(world.sandboxes->Delete(world.scope, "any", false)));
  EXPECT_TRUE(world.Until([&] { return !there("gone"); }));
  for (const char* name : {"plain", "other-value", "kept"}) EXPECT_TRUE(there(name)) << name;
}

TEST_F(IdleTest, WhoeverUsesItKeepsItAwake) {
  Boot();
  auto view = Idle("box", 1000);
  auto use = world.sessions->Use(world.scope, view.session.id);
  ASSERT_TRUE(use);
  Scope other = world.scope;
  other.team = "team_b";
  EXPECT_FALSE(world.sessions->Use(other, view.session.id)) << "not a stranger";
  Pause(1600);
  EXPECT_EQ(Row(view).status, store::Status::kRunning);
  use.reset();
  Pause(500);
  EXPECT_EQ(Row(view).status, store::Status::kRunning) << "counted from the last use";
  EXPECT_TRUE(Stops(view));
}

TEST_F(IdleTest, ARunningCommandCounts) {
  Boot();
  auto view = Idle("box", 1000);
  auto command = world.Exec(view.session.id, World::Command({"sleep"}));
  Pause(1600);
  EXPECT_EQ(Row(view).status, store::Status::kRunning);
  ASSERT_TRUE(world.Run(world.commands->Kill(world.scope, view.session.id, command.id, 9)));
  EXPECT_TRUE(Stops(view));
}

TEST_F(IdleTest, IsKeptOverARestartAndCanBeChanged) {
  Boot();
  auto view = Idle("box", 1000);
  ASSERT_TRUE(world.Restart());
  EXPECT_TRUE(Stops(view));
  auto second = Idle("second", 1000);
  UpdateSpec clear;
  clear.idle_timeout_ms.emplace();
  ASSERT_TRUE(world.Run(world.sandboxes->Update(world.scope, "second", clear)));
  Pause(1500);
  EXPECT_EQ(Row(second).status, store::Status::kRunning);
}

TEST_F(IdleTest, UsageCountsRunningAndDeletedOnes) {
  Boot();
  auto view = world.Create();
  Pause(50);
  auto live = world.Run(world.sandboxes->Usage(world.scope));
  ASSERT_TRUE(live);
  ASSERT_EQ(live->size(), 1U);
  EXPECT_EQ(live->at(0).creations, 1U);
  EXPECT_GE(live->at(0).memory_mb_ms, 4096U * 50);
  ASSERT_TRUE(world.Run(world.sandboxes->Delete(world.scope, view.sandbox.name, false)));
  auto after = world.Run(world.sandboxes->Usage(world.scope));
  ASSERT_TRUE(after);
  EXPECT_EQ(after->at(0).creations, 1U);
  EXPECT_GE(after->at(0).memory_mb_ms, live->at(0).memory_mb_ms);
  Scope other = world.scope;
  other.project = "prj_b";
  EXPECT_TRUE(world.Run(world.sandboxes->Usage(other))->empty());
}

TEST_F(IdleTest, NoMoreRecordsThanTheLimit) {
  world.config.max_sandboxes = 2;
  Boot();
  auto first = world.Create();
  world.Create();
  auto third = world.Run(world.sandboxes->Create(world.scope, {}));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::kTooMany);
  EXPECT_TRUE(third.error().message.contains("max_sandboxes")) << third.error().message;
  ASSERT_TRUE(world.Run(world.sandboxes->Delete(world.scope, first.sandbox.name, false)));
  EXPECT_TRUE(world.Run(world.sandboxes->Create(world.scope, {})));
}

}  // namespace
}  // namespace sandbar::sandbox
