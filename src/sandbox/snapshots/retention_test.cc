// Sandboxes that nobody named: what is left of them goes after a while, unless somebody used them again.
#include "sandbox/snapshots/retention.h"

#include <gmock/gmock.h>

#include <functional>

#include "base/ids.h"
#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kDayMs = 24 * kHourMs;

class RetentionTest : public DomainTest {
 protected:
  SandboxView Stop(const SandboxView& view) {
    auto r = world.Run(world.sessions->Stop(world.scope, view.session.id));
    EXPECT_TRUE(r) << (r ? "" : r.error().message);
    return r ? *r : SandboxView{};
  }
  SandboxView Stopped(CreateSpec spec = {}) { return Stop(world.Create(std::move(spec))); }
  bool There(const std::string& name) { return world.Run(world.sandboxes->Get(world.scope, name, false)).has_value(); }
  int64_t LifeOf(const std::string& snapshot) {
    auto s = world.Run(world.snapshots->Get(world.scope, snapshot));
    EXPECT_TRUE(s);
    return s ? s->expiration_ms : -1;
  }
  store::SandboxKey Key(const std::string& name) const { return {world.scope.team, world.scope.project, name}; }

  // The records and snapshots of all sandboxes become older, and the house is tidied.
  void Later(int64_t ms) {
    world.Crash();
    auto own = world.OpenStore();
    auto page = own->ListSandboxes({.team = world.scope.team, .project = world.scope.project, .limit = 50});
    ASSERT_TRUE(page);
    for (const store::Sandbox& sandbox : page->items) {
      auto age = [ms](store::Sandbox& s) -> Result<> {
        s.status_updated_at -= ms;
        return {};
      };
      ASSERT_TRUE(own->EditSandbox(store::KeyOf(sandbox), age));
    }
    auto snapshots = own->AllSnapshots();
    ASSERT_TRUE(snapshots);
    for (const store::Snapshot& snapshot : *snapshots) {
      auto age = [ms](store::Snapshot& s) -> Result<> {
        s.last_used_at -= ms;
        return {};
      };
      ASSERT_TRUE(own->EditSnapshot(snapshot.id, age));
    }
    Boot();
    // One that is due goes in every pass: when it is gone, the pass is over for the others too.
    const std::string canary = "tidied";
    auto due = [](store::Sandbox& s) -> Result<> {
      s.collect_after_ms = 1;
      s.status_updated_at -= 1000;
      return {};
    };
    CreateSpec spec;
    spec.name = canary;
    spec.persistent = false;
    Stop(world.Create(spec));
    ASSERT_TRUE(own->EditSandbox(Key(canary), due));
    CreateSpec any;
    any.name = "any";
    world.Create(any);
    ASSERT_TRUE(world.Run(world.sandboxes->Delete(world.scope, "any", false)));  // has the house tidied
    ASSERT_TRUE(world.Until([&] { return !There(canary); }));
  }
};

TEST_F(RetentionTest, AnUnnamedOneGoesADayAfterItsEnd) {
  Boot();
  auto view = Stopped();
  ASSERT_TRUE(view.snapshot);
  EXPECT_EQ(LifeOf(view.snapshot->id), kDayMs) << "what the API says of it is true";
  CreateSpec gone;
  gone.persistent = false;
  auto without = Stopped(gone);
  CreateSpec old;
  old.v1 = true;
  auto v1 = Stopped(old);
  Later(kDayMs - kHourMs);
  for (const auto* v : {&view, &without, &v1}) EXPECT_TRUE(There(v->sandbox.name));
  EXPECT_FALSE(world.Run(world.snapshots->Get(world.scope, view.snapshot->id))->deleted);
  Later(2 * kHourMs);
  for (const auto* v : {&view, &without, &v1}) EXPECT_FALSE(There(v->sandbox.name));
  EXPECT_TRUE(world.Until([&] { return world.Run(world.snapshots->Get(world.scope, view.snapshot->id))->deleted; }));
  EXPECT_TRUE(world.Until([&] { return !world.host.snapshots.contains(view.snapshot->id); })) << "its files too";
}

TEST_F(RetentionTest, ARunningOneStays) {
  Boot();
  auto view = world.Create();
  Later(10 * kDayMs);
  EXPECT_TRUE(There(view.sandbox.name));
  EXPECT_EQ(world.Run(world.sessions->Get(world.scope, view.session.id))->session.status, store::Status::kRunning);
}

TEST_F(RetentionTest, WhatWasNamedOrAskedForAtItsCreationStays) {
  Boot();
  std::vector<std::pair<std::string, std::function<void(CreateSpec&)>>> ways = {
      {"named", [](CreateSpec& s) { s.name = "mine"; }},
      {"tagged", [](CreateSpec& s) { s.tags["by"] = "me"; }},
      {"said to be persistent", [](CreateSpec& s) { s.persistent = true; }},
      {"its snapshots have a life of their own", [](CreateSpec& s) { s.snapshot_expiration_ms = 7 * kDayMs; }},
      {"it keeps its last ones", [](CreateSpec& s) { s.keep_last_snapshots = {.count = 2}; }}};
  std::vector<SandboxView> made;
  for (const auto& [way, ask] : ways) {
    CreateSpec spec;
    ask(spec);
    made.push_back(Stopped(spec));
  }
  Later(2 * kDayMs);
  for (size_t i = 0; i < ways.size(); ++i) {
    EXPECT_TRUE(There(made[i].sandbox.name)) << ways[i].first;
    EXPECT_FALSE(world.Run(world.snapshots->Get(world.scope, made[i].snapshot->id))->deleted) << ways[i].first;
  }
}

TEST_F(RetentionTest, WhatSomebodyUsedStays) {
  Boot();
  auto& sandboxes = *world.sandboxes;
  std::vector<std::pair<std::string, std::function<void(const SandboxView&)>>> ways = {
      {"resumed",
       [&](const SandboxView& v) {
         auto back = world.Run(sandboxes.Get(world.scope, v.sandbox.name, true));
         ASSERT_TRUE(back);
         Stop(*back);
       }},
      {"forked",
       [&](const SandboxView& v) {
         ForkSpec spec;
         spec.name = "a-fork";
         ASSERT_TRUE(world.Run(sandboxes.Fork(world.scope, v.sandbox.name, spec)));
       }},
      {"its snapshot was used",
       [&](const SandboxView& v) {
         CreateSpec spec;
         spec.name = "from-snapshot";
         spec.source_snapshot = v.snapshot->id;
         world.Create(spec);
       }},
      {"another one stands on its snapshot",
       [&](const SandboxView& v) {
         CreateSpec spec;
         spec.name = "moved";
         Stop(world.Create(spec));
         UpdateSpec update;
         update.current_snapshot = v.snapshot->id;
         ASSERT_TRUE(world.Run(sandboxes.Update(world.scope, "moved", update)));
       }},
      {"tagged since",
       [&](const SandboxView& v) {
         UpdateSpec update;
         update.tags.emplace()["keep"] = "yes";
         ASSERT_TRUE(world.Run(sandboxes.Update(world.scope, v.sandbox.name, update)));
       }},
      {"changed since", [&](const SandboxView& v) {
         UpdateSpec update;
         update.timeout_ms = 60000;
         ASSERT_TRUE(world.Run(sandboxes.Update(world.scope, v.sandbox.name, update)));
       }}};
  std::vector<SandboxView> made;
  for (const auto& [way, use] : ways) {
    made.push_back(Stopped());
    EXPECT_EQ(LifeOf(made.back().snapshot->id), kDayMs);
    use(made.back());
    EXPECT_EQ(LifeOf(made.back().snapshot->id), kDefaultSnapshotExpirationMs) << way;
  }
  auto asked = world.Create();
  auto taken = world.Run(world.snapshots->Take(world.scope, asked.session.id, std::nullopt));
  ASSERT_TRUE(taken);
  EXPECT_EQ(LifeOf(taken->snapshot.id), kDefaultSnapshotExpirationMs);
  auto source = world.Create();
  ForkSpec spec;
  spec.name = "of-a-running-one";
  ASSERT_TRUE(world.Run(world.sandboxes->Fork(world.scope, source.sandbox.name, spec)));
  Stop(source);
  Later(2 * kDayMs);
  for (size_t i = 0; i < ways.size(); ++i) {
    EXPECT_TRUE(There(made[i].sandbox.name)) << ways[i].first;
    EXPECT_FALSE(world.Run(world.snapshots->Get(world.scope, made[i].snapshot->id))->deleted) << ways[i].first;
  }
  EXPECT_TRUE(There(asked.sandbox.name)) << "somebody asked for a snapshot of it";
  EXPECT_TRUE(There(source.sandbox.name)) << "it was forked while it ran";
}

TEST_F(RetentionTest, AChangeWhileItRunsIsNoUse) {
  Boot();
  auto view = world.Create();
  UpdateSpec update;
  update.timeout_ms = 60000;
  ASSERT_TRUE(world.Run(world.sandboxes->Update(world.scope, view.sandbox.name, update)));
  Stop(view);
  Later(2 * kDayMs);
  EXPECT_FALSE(There(view.sandbox.name));
}

TEST_F(RetentionTest, AnUnnamedForkIsUnnamed) {
  Boot();
  CreateSpec spec;
  spec.name = "source";
  Stopped(spec);
  auto fork = world.Run(world.sandboxes->Fork(world.scope, "source", {}));
  ASSERT_TRUE(fork);
  Stop(*fork);
  Later(2 * kDayMs);
  EXPECT_FALSE(There(fork->sandbox.name));
  EXPECT_TRUE(There("source"));
}

TEST_F(RetentionTest, TheOperatorCanTurnItOff) {
  world.config.collect_unnamed_ms = 0;
  Boot();
  auto view = Stopped();
  EXPECT_EQ(LifeOf(view.snapshot->id), kDefaultSnapshotExpirationMs);
  Later(2 * kDayMs);
  EXPECT_TRUE(There(view.sandbox.name));
}

}  // namespace
}  // namespace sandbar::sandbox
