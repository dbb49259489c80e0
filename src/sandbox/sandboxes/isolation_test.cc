// What sandboxes demand of their machines, over the life of the sandbox and of the server.
#include <gmock/gmock.h>

#include "sandbox/engine_selector.h"
#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using engine::RootfsFormat;
using testing::HasSubstr;

class IsolationTest : public DomainTest {
 protected:
  IsolationTest() {
    world.host.engines = {{.name = "namespaces", .isolation_class = 1},
                          {.name = "gvisor", .isolation_class = 2},
                          {.name = "microvm", .isolation_class = 3, .format = RootfsFormat::kBlock}};
    world.config.isolation = "namespaces";
  }
  static CreateSpec Demanding(int min_class, std::string engine = "", std::string name = "box") {
    CreateSpec spec;
    spec.name = std::move(name);
    spec.isolation = {min_class, std::move(engine)};
    return spec;
  }
  Error Refused(CreateSpec spec) {
    auto r = world.Run(world.sandboxes->Create(world.scope, std::move(spec)));
    EXPECT_FALSE(r);
    EXPECT_TRUE(world.host.ids().empty()) << "no machine is made for it";
    return r ? Error{} : r.error();
  }
  Result<SandboxView> Resume(const std::string& name = "box") {
    return world.Run(world.sandboxes->Get(world.scope, name, true));
  }
  void Stop(const SandboxView& view) { ASSERT_TRUE(world.Run(world.sessions->Stop(world.scope, view.session.id))); }
  void Lose(const std::string& engine) {
    for (auto& e : world.host.engines) {
      if (e.name != engine) continue;
      e.usable = false;
      e.why_not = "it was removed: get it back";
    }
    ASSERT_TRUE(world.Restart());
  }
  std::string EngineOf(const SandboxView& view) {
    auto* machine = world.Machine(view);
    return machine == nullptr ? "" : machine->engine;
  }
};

TEST_F(IsolationTest, TheMachineTheSessionAndTheRecordAgree) {
  Boot();
  auto by_default = world.Create(Demanding(0, "", "default"));
  EXPECT_EQ(EngineOf(by_default), "namespaces");
  EXPECT_EQ(by_default.session.isolation_class, 1);
  auto strong = world.Create(Demanding(3));
  EXPECT_EQ(EngineOf(strong), "microvm");
  EXPECT_EQ(std::tie(strong.session.engine, strong.session.isolation_class),
            std::make_tuple(std::string("microvm"), 3));
  auto listed = world.Run(world.sandboxes->Get(world.scope, "box", false));
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->sandbox.engine, "microvm");
  EXPECT_EQ(listed->sandbox.isolation_class, 3);
  EXPECT_EQ(listed->sandbox.isolation.min_class, 3);
  EXPECT_EQ(world.Machine(strong)->rootfs.format, RootfsFormat::kBlock);
  EXPECT_EQ(world.server->Info().engine, "namespaces");
  EXPECT_EQ(world.server->Info().engines.size(), 3U);
}

TEST_F(IsolationTest, TheTagDemandsToo) {
  Boot();
  CreateSpec spec = Demanding(0);
  spec.tags[kMinClassTag] = "2";
  EXPECT_EQ(EngineOf(world.Create(spec)), "gvisor");
  CreateSpec both = Demanding(3, "", "both");
  both.tags[kMinClassTag] = "2";
  EXPECT_EQ(EngineOf(world.Create(both)), "microvm") << "the higher of the two";
  CreateSpec wrong = Demanding(0, "", "wrong");
  wrong.tags[kMinClassTag] = "strong";
  auto r = world.Run(world.sandboxes->Create(world.scope, wrong));
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::kBadRequest);
}

TEST_F(IsolationTest, RefusedRatherThanWeakened) {
  world.host.engines[2].usable = false;
  world.host.engines[2].why_not = "no /dev/kvm";
  Boot();
  Error none = Refused(Demanding(3));
  EXPECT_EQ(none.code, Code::kUnsupported);
  EXPECT_THAT(none.message, HasSubstr("no /dev/kvm"));
  EXPECT_EQ(Refused(Demanding(0, "microvm")).code, Code::kUnsupported);
  EXPECT_EQ(Refused(Demanding(0, "xen")).code, Code::kBadRequest);
  EXPECT_EQ(Refused(Demanding(4)).code, Code::kBadRequest);
  auto listed = world.Run(world.sandboxes->List(world.scope, {}));
  EXPECT_TRUE(listed && listed->items.empty()) << "and no record is left";
}

TEST_F(IsolationTest, AServerWhoseDefaultCannotBeUsedDoesNotStart) {
  world.config.isolation = "microvm";
  world.host.engines[2].usable = false;
  world.host.engines[2].why_not = "no /dev/kvm: run on a host with virtualisation";
  auto started = world.Start();
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message, HasSubstr("run on a host with virtualisation"));
}

TEST_F(IsolationTest, ResumeKeepsTheDemand) {
  Boot();
  Stop(world.Create(Demanding(3)));
  auto back = Resume();
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(EngineOf(*back), "microvm");
  Stop(*back);
  Lose("microvm");
  auto refused = Resume();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("get it back"));
  world.host.engines[2].usable = true;
  ASSERT_TRUE(world.Restart());
  EXPECT_TRUE(Resume());
}

TEST_F(IsolationTest, ForksKeepTheDemandAndMayRaiseIt) {
  Boot();
  auto box = world.Create(Demanding(2));
  ForkSpec fork;
  fork.name = "same";
  auto same = world.Run(world.sandboxes->Fork(world.scope, "box", fork));
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(EngineOf(*same), "gvisor");
  fork.name = "lower";
  fork.changes.isolation.min_class = 1;
  auto lower = world.Run(world.sandboxes->Fork(world.scope, "box", fork));
  ASSERT_TRUE(lower);
  EXPECT_EQ(lower->sandbox.isolation.min_class, 2) << "the source's files are in it";
  fork.name = "weak";
  fork.changes.isolation = {0, "namespaces"};
  EXPECT_EQ(world.Run(world.sandboxes->Fork(world.scope, "box", fork)).error().code, Code::kUnsupported);
  fork.name = "higher";
  fork.changes.isolation = {3, ""};
  auto higher = world.Run(world.sandboxes->Fork(world.scope, "box", fork));
  ASSERT_TRUE(higher) << higher.error().message;
  EXPECT_EQ(EngineOf(*higher), "microvm");
}

TEST_F(IsolationTest, AnUpdateRaisesWhatTheNextSessionGets) {
  Boot();
  auto box = world.Create(Demanding(0));
  UpdateSpec more;
  more.tags.emplace();
  (*more.tags)[kMinClassTag] = "2";
  EXPECT_EQ(world.Run(world.sandboxes->Update(world.scope, "box", more)).error().code, Code::kConflict)
      << "it runs with less";
  Stop(box);
  ASSERT_TRUE(world.Run(world.sandboxes->Update(world.scope, "box", more)));
  UpdateSpec other_tags;
  other_tags.tags.emplace();
  ASSERT_TRUE(world.Run(world.sandboxes->Update(world.scope, "box", other_tags)));
  auto back = Resume();
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(EngineOf(*back), "gvisor") << "new tags do not take the demand away";
}

TEST_F(IsolationTest, ADemandedEngineIsNotReplacedByLess) {
  Boot();
  auto view = world.Create(Demanding(0, "gvisor"));
  Stop(view);
  UpdateSpec less;
  less.isolation.engine = "namespaces";
  auto refused = world.Run(world.sandboxes->Update(world.scope, "box", less));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kBadRequest);
  EXPECT_THAT(refused.error().message, HasSubstr("gvisor is demanded already"));
  auto again = Resume();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->session.engine, "gvisor");
}

TEST_F(IsolationTest, SnapshotsOfTheOtherFormat) {
  Boot();
  auto box = world.Create(Demanding(0, "microvm"));
  Stop(box);
  auto record = world.Run(world.sandboxes->Get(world.scope, "box", false));
  auto snapshot = world.Run(world.snapshots->Get(world.scope, record->sandbox.current_snapshot));
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->format, "block");
  EXPECT_EQ(snapshot->engine, "microvm");
  CreateSpec on_it = Demanding(0, "namespaces", "other");
  on_it.source_snapshot = snapshot->id;
  auto converted = world.Create(on_it);
  EXPECT_EQ(EngineOf(converted), "namespaces");
  EXPECT_THAT(world.Machine(converted)->rootfs.snapshots, testing::ElementsAre(snapshot->id + "-dir"));
  EXPECT_EQ(world.host.ids().size(), 1U) << "the machines that carried the files are gone";
  on_it.isolation = {};
  on_it.name = "again";
  EXPECT_EQ(EngineOf(world.Create(on_it)), "microvm") << "the one that can stand on it";
  // The other way round: a sandbox that wants a microVM gets the state of one that was none.
  auto plain = world.Create(Demanding(0, "", "plain"));
  ASSERT_TRUE(world.Run(world.races->Promote(world.scope, "plain", "box")));
  auto back = Resume();
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->session.engine, "microvm");
  EXPECT_THAT(world.Machine(*back)->rootfs.snapshots, testing::ElementsAre(testing::EndsWith("-block")));
}

TEST_F(IsolationTest, WhatCannotBeConvertedIsRefusedWithBothFormats) {
  Boot();
  auto box = world.Create(Demanding(0, "microvm"));
  Stop(box);
  CreateSpec on_it = Demanding(0, "namespaces", "other");
  on_it.source_snapshot = world.Run(world.sandboxes->Get(world.scope, "box", false))->sandbox.current_snapshot;
  world.host.faults.configure = engine::FakeFault::kFail;
  auto refused = world.Run(world.sandboxes->Create(world.scope, on_it));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kConflict);
  EXPECT_THAT(refused.error().message, testing::AllOf(HasSubstr("\"block\""), HasSubstr("\"dir\"")));
  EXPECT_TRUE(world.host.ids().empty());
}

TEST_F(IsolationTest, ConvertedLayersGoWithTheirOriginal) {
  Boot();
  auto box = world.Create(Demanding(0, "microvm"));
  Stop(box);
  const std::string id = world.Run(world.sandboxes->Get(world.scope, "box", false))->sandbox.current_snapshot;
  ASSERT_TRUE(world.Run(world.snapshots->Diff(world.scope, "", "box")));
  EXPECT_TRUE(world.host.snapshots.contains(id + "-dir"));
  ASSERT_TRUE(world.Run(world.snapshots->Delete(world.scope, id)));
  EXPECT_TRUE(world.Until([&] { return world.host.snapshots.empty(); }));
}

TEST_F(IsolationTest, PoolsHoldTheDefaultEngineOnly) {
  world.config.pools = {{.image = "vercel/sandbox/universal:latest", .vcpus = 2, .count = 1}};
  Boot();
  ASSERT_TRUE(world.Until([&] { return world.host.ids().size() == 1; }));
  const std::string pooled = world.host.ids().front();
  EXPECT_EQ(world.host.Find(pooled)->engine, "namespaces");
  EXPECT_NE(world.Create(Demanding(2)).session.machine_id, pooled);
  EXPECT_EQ(world.Create(Demanding(1, "", "default")).session.machine_id, pooled);
}

TEST_F(IsolationTest, AMachineThatOutlivesTheServerStaysWhatItWas) {
  Boot();
  auto box = world.Create(Demanding(2));
  world.config.isolation = "microvm";
  ASSERT_TRUE(world.Restart());
  auto back = Resume();
  ASSERT_TRUE(back);
  EXPECT_EQ(back->session.id, box.session.id);
  EXPECT_EQ(back->session.engine, "gvisor");
  EXPECT_EQ(back->session.isolation_class, 2);
}

// A setting that let emulation count as class 3 is taken back: over a restart its sandboxes lose that class.
TEST_F(IsolationTest, AClassThatIsTakenBackEndsWhoDemandedIt) {
  world.host.engines.push_back(
      {.name = "microvm-emulated", .isolation_class = 1, .emulated = true, .restores_slowly = true});
  world.host.engines[2].usable = false;
  world.config.allow_tcg_as_class3 = true;
  Boot();
  auto box = world.Create(Demanding(3));
  EXPECT_EQ(EngineOf(box), "microvm-emulated");
  EXPECT_EQ(box.session.isolation_class, 3);
  auto free = world.Create(Demanding(0, "microvm-emulated", "free"));
  world.config.allow_tcg_as_class3 = false;
  ASSERT_TRUE(world.Restart());
  ASSERT_TRUE(world.Until([&] { return world.host.Find(box.session.machine_id) == nullptr; }));
  EXPECT_EQ(Resume().error().code, Code::kUnsupported);
  auto kept = Resume("free");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->session.id, free.session.id);
  EXPECT_EQ(kept->session.isolation_class, 1) << "and says what it is now";
  EXPECT_EQ(kept->sandbox.isolation_class, 1);
}

TEST_F(IsolationTest, NestingStaysWithTheSandboxAndEndsWithThePermission) {
  world.host.engines[2].usable = false;
  world.host.engines[1].no_nesting = "it cannot";
  world.config.allow_nesting_on_class1 = true;
  Boot();
  CreateSpec spec = Demanding(0);
  spec.isolation.nesting = true;
  auto box = world.Create(spec);
  EXPECT_TRUE(world.Machine(box)->nesting);
  EXPECT_EQ(std::tie(box.session.engine, box.session.isolation_class), std::make_tuple(std::string("namespaces"), 0));
  Stop(box);
  auto again = Resume();
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->session.nesting && again->sandbox.isolation.nesting);
  EXPECT_TRUE(world.Machine(*again)->nesting);
  // One that runs without it does not get it.
  world.Create(Demanding(0, "", "plain"));
  UpdateSpec more;
  more.isolation.nesting = true;
  EXPECT_EQ(world.Run(world.sandboxes->Update(world.scope, "plain", more)).error().code, Code::kConflict);
  world.config.allow_nesting_on_class1 = false;
  ASSERT_TRUE(world.Restart());
  ASSERT_TRUE(world.Until([&] { return world.host.Find(again->session.machine_id) == nullptr; }));
  EXPECT_EQ(Resume().error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace sandbar::sandbox
