// Drives of the domain: who holds them, what a stop makes of them, and every point at which a server can die.
#include <gmock/gmock.h>

#include "base/ids.h"
#include "sandbox/drives/drive_records.h"
#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using engine::FakeFault;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;

class DrivesTest : public DomainTest {
 protected:
  Result<DriveView> Make(const std::string& name, DriveSpec spec = {}) {
    return world.Run(world.drives->Make(world.scope, name, std::move(spec)));
  }
  std::string MakeId(const std::string& name) {
    auto made = Make(name);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return made ? made->drive.id : "";
  }
  DriveView See(const std::string& name) {
    auto page = world.Run(world.drives->List(world.scope, {}));
    EXPECT_TRUE(page);
    for (const DriveView& view : page->items) {
      if (view.drive.name == name) return view;
    }
    return {};
  }
  static CreateSpec With(const std::string& name, const std::string& drive, const std::string& mode) {
    CreateSpec spec;
    spec.name = name;
    spec.mounts["/data"] = {drive, mode};
    return spec;
  }
  Result<SandboxView> TryCreate(CreateSpec spec) {
    return world.Run(world.sandboxes->Create(world.scope, std::move(spec)));
  }
  SandboxView Stop(const SandboxView& view) {
    auto r = world.Run(world.sessions->Stop(world.scope, view.session.id));
    EXPECT_TRUE(r) << (r ? "" : r.error().message);
    return r ? *r : SandboxView{};
  }
  // Begins a stop and gives its outcome a place.
  void BeginStop(const SandboxView& view) {
    asio::co_spawn(world.ioc.get_executor(), world.sessions->Stop(world.scope, view.session.id),
                   [this](std::exception_ptr, Result<SandboxView> r) { stopped_ = std::move(r); });
  }
  std::optional<Result<SandboxView>> stopped_;
};

TEST_F(DrivesTest, OneWriterThenItsStateForReaders) {
  Boot();
  const std::string id = MakeId("d");
  EXPECT_EQ(world.host.drives.at(id), world.config.drive_bytes);
  EXPECT_EQ(TryCreate(With("r0", "d", "snapshot")).error().code, Code::kDriveEmpty);
  auto writer = world.Create(With("w", "d", "read-write"));
  ASSERT_EQ(world.Machine(writer)->rootfs.mounts.size(), 1U);
  const auto& mount = world.Machine(writer)->rootfs.mounts[0];
  EXPECT_EQ(mount.path, "/data");
  EXPECT_EQ(mount.name, id);
  EXPECT_TRUE(mount.writable);
  EXPECT_EQ(mount.uid, 1000U);
  EXPECT_EQ(See("d").sandbox, "w");
  EXPECT_EQ(See("d").session, writer.session.id);
  auto second = TryCreate(With("w2", "d", "read-write"));
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_THAT(second.error().message, HasSubstr("\"w\""));
  EXPECT_EQ(world.Run(world.drives->Delete(world.scope, "d")).error().code, Code::kConflict);
  Stop(writer);
  EXPECT_EQ(See("d").session, "");
  EXPECT_EQ(See("d").drive.state, 1);

  auto reader = world.Create(With("r", "d", "read-only"));
  auto again = world.Create(With("w3", "d", "read-write"));
  EXPECT_EQ(world.Machine(reader)->rootfs.mounts.at(0).name, DriveSnapshotName(id, 1));
  EXPECT_FALSE(world.Machine(reader)->rootfs.mounts.at(0).writable);
  Stop(again);
  EXPECT_THAT(world.host.drives, Contains(Key(DriveSnapshotName(id, 1)))) << "a machine still shows it";
  EXPECT_EQ(world.Machine(world.Create(With("r2", "d", "snapshot")))->rootfs.mounts.at(0).name,
            DriveSnapshotName(id, 2));
  Stop(reader);
  EXPECT_TRUE(world.Until([&] { return !world.host.drives.contains(DriveSnapshotName(id, 1)); }));
  EXPECT_THAT(world.host.drives, Contains(Key(DriveSnapshotName(id, 2))));
}

TEST_F(DrivesTest, MountsAreOfTheNextSession) {
  Boot();
  MakeId("d");
  auto view = world.Create(With("box", "d", "read-write"));
  UpdateSpec clear;
  clear.mounts.emplace();
  ASSERT_TRUE(world.Run(world.sandboxes->Update(world.scope, "box", clear)));
  EXPECT_EQ(See("d").sandbox, "box") << "the running session keeps what it has";
  Stop(view);
  auto back = world.Run(world.sandboxes->Get(world.scope, "box", true));
  ASSERT_TRUE(back);
  EXPECT_THAT(world.Machine(*back)->rootfs.mounts, IsEmpty());
  UpdateSpec unknown;
  unknown.mounts.emplace();
  unknown.mounts->emplace("/x", store::Mount{"nobody", "snapshot"});
  EXPECT_EQ(world.Run(world.sandboxes->Update(world.scope, "box", unknown)).error().code, Code::kNotFound);
}

TEST_F(DrivesTest, AMachineOfThePoolIsNotUsed) {
  world.config.pools.push_back({"", "node24", 2, 1});
  Boot();
  ASSERT_TRUE(world.Until([&] { return world.host.boots == 1 && !world.host.ids().empty(); }));
  MakeId("d");
  CreateSpec spec = With("box", "d", "read-write");
  spec.runtime = "node24";
  auto view = world.Create(spec);
  EXPECT_EQ(world.Machine(view)->rootfs.mounts.size(), 1U);
}

TEST_F(DrivesTest, GetOrCreate) {
  Boot();
  DriveSpec spec{"sfo1", 5ULL << 20};
  auto made = Make("d", spec);
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->created);
  EXPECT_EQ(world.host.drives.at(made->drive.id), 5ULL << 20);
  auto same = Make("d");
  ASSERT_TRUE(same);
  EXPECT_FALSE(same->created);
  EXPECT_EQ(same->drive.id, made->drive.id);
  EXPECT_EQ(Make("d", {"iad1", std::nullopt}).error().code, Code::kConflict);
  EXPECT_EQ(Make("d", {std::nullopt, 6ULL << 20}).error().code, Code::kConflict);
  EXPECT_EQ(Make("x", {std::nullopt, 5}).error().code, Code::kBadRequest);
  EXPECT_EQ(Make(std::string(65, 'x')).error().code, Code::kBadRequest);
  EXPECT_EQ(TryCreate(With("box", "d", "read-write")).error().code, Code::kBadRequest) << "another region";
  // What the disk cannot give leaves no row.
  world.host.faults.create_drive = FakeFault::kFail;
  EXPECT_FALSE(Make("e"));
  world.host.faults = {};
  EXPECT_EQ(See("e").drive.id, "");
  // Neither project nor team of others has it.
  Scope other = world.scope;
  other.project = "prj_b";
  EXPECT_EQ(world.Run(world.drives->Delete(other, "d")).error().code, Code::kNotFound);
}

TEST_F(DrivesTest, AStartThatFailsHoldsNothing) {
  Boot();
  MakeId("d");
  world.host.faults.boot = FakeFault::kFail;
  EXPECT_FALSE(TryCreate(With("box", "d", "read-write")));
  world.host.faults = {};
  EXPECT_EQ(See("d").session, "");
  EXPECT_EQ(See("d").drive.state, 0) << "nobody has used it";
  world.Create(With("box", "d", "read-write"));
}

TEST_F(DrivesTest, ACreateCutByACrashHoldsNothing) {
  Boot();
  MakeId("d");
  world.host.faults.configure = FakeFault::kHang;
  asio::co_spawn(world.ioc.get_executor(), world.sandboxes->Create(world.scope, With("box", "d", "read-write")),
                 [](std::exception_ptr, const Result<SandboxView>& r) { EXPECT_FALSE(r); });
  ASSERT_TRUE(world.Until([&] { return world.host.boots == 1; }));
  world.Crash();
  world.host.faults = {};
  ASSERT_TRUE(world.Start());
  EXPECT_EQ(See("d").session, "");
  EXPECT_THAT(world.host.ids(), IsEmpty());
}

TEST_F(DrivesTest, ALostMachineLeavesItsState) {
  Boot();
  const std::string id = MakeId("d");
  auto view = world.Create(With("box", "d", "read-write"));
  world.Crash();
  world.Await(world.host.EndMachine(view.session.machine_id));
  ASSERT_TRUE(world.Start());
  ASSERT_TRUE(world.Until([&] { return See("d").session.empty(); }));
  EXPECT_EQ(See("d").drive.state, 1);
  EXPECT_THAT(world.host.drives, Contains(Key(DriveSnapshotName(id, 1))));
}

TEST_F(DrivesTest, ACrashWhileTheStateIsMade) {
  Boot();
  const std::string id = MakeId("d");
  auto view = world.Create(With("box", "d", "read-write"));
  world.host.faults.snapshot_drive = FakeFault::kHang;
  BeginStop(view);
  ASSERT_TRUE(world.Until([&] { return world.host.ids().empty(); }));
  EXPECT_EQ(See("d").sandbox, "box") << "held until there is a drive snapshot";
  world.Crash();
  world.host.faults = {};
  // As far as the spawner got on its own.
  ASSERT_TRUE(world.Run(world.engine->SnapshotDrive(id, DriveSnapshotName(id, 1), "")));
  ASSERT_TRUE(world.Start());
  ASSERT_TRUE(world.Until([&] { return See("d").session.empty(); }));
  EXPECT_EQ(See("d").drive.state, 1);
  auto record = world.Run(world.sandboxes->Get(world.scope, "box", false));
  ASSERT_TRUE(record);
  EXPECT_NE(record->sandbox.current_snapshot, "") << "and its own files are there too";
}

TEST_F(DrivesTest, AStopWaitsUntilTheStateCanBeMade) {
  Boot();
  MakeId("d");
  auto view = world.Create(With("box", "d", "read-write"));
  world.Machine(view)->usage.cpu_ns = 7'000'000;
  world.host.faults.snapshot_drive = FakeFault::kFail;
  BeginStop(view);
  ASSERT_TRUE(world.Until([&] { return world.host.ids().empty(); }));
  for (int i = 0; i < 50; ++i) world.Step();
  EXPECT_FALSE(stopped_);
  world.host.faults = {};
  ASSERT_TRUE(world.Until([&] { return stopped_.has_value(); }));
  ASSERT_TRUE(*stopped_) << stopped_->error().message;
  EXPECT_EQ((*stopped_)->session.cpu_ms, 7U) << "what the machine used is counted once";
  EXPECT_EQ(See("d").drive.state, 1);
}

TEST_F(DrivesTest, DeletedOnesGoFromDiskWhenNobodyReadsThem) {
  Boot();
  world.host.drives["drv_stranger"] = 0;
  const std::string id = MakeId("d");
  Stop(world.Create(With("w", "d", "read-write")));
  auto reader = world.Create(With("r", "d", "snapshot"));
  ASSERT_TRUE(world.Run(world.drives->Delete(world.scope, "d")));
  EXPECT_NE(MakeId("d"), id) << "the name is free";
  EXPECT_THAT(world.host.drives, Contains(Key(DriveSnapshotName(id, 1))));
  Stop(reader);
  ASSERT_TRUE(world.Until([&] { return !world.host.drives.contains(DriveSnapshotName(id, 1)); }));
  EXPECT_THAT(world.host.drives, Not(Contains(Key(id))));
  EXPECT_THAT(world.host.drives, Contains(Key("drv_stranger"))) << "the database may be what was lost";
  auto back = world.Run(world.sandboxes->Get(world.scope, "r", true));
  EXPECT_EQ(back.error().code, Code::kDriveEmpty) << "of that name there is another one now";
}

TEST(CheckMounts, Paths) {
  auto refusal = [](std::map<std::string, store::Mount> mounts) {
    auto r = CheckMounts(mounts);
    return r ? std::string() : r.error().message;
  };
  const store::Mount rw{"d", "read-write"}, ro{"d", "snapshot"};
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{"/data", rw}, {"/data2", ro}, {"/da", ro}, {"/.x/..y", ro}}), "");
  for (const char* path : {"", "/", "data", "/data/", "//data", "/a//b", "/a/./b", "/a/.", "/..", "/a/../b", "/a\nb"}) {
    EXPECT_THAT(refusal({{path, rw}}), HasSubstr("absolute, normalised")) << path;
  }
  for (const char* path : {"/proc", "/proc/self", "/sys/x", "/dev", "/dev/shm"}) {
    EXPECT_THAT(refusal({{path, rw}}), HasSubstr("the machine's own")) << path;
  }
  EXPECT_EQ(refusal({{"/process", rw}, {"/device", ro}}), "");
  EXPECT_THAT(refusal({{"/a", rw}, {"/a/b", ro}}), HasSubstr("\"/a/b\" lies in \"/a\""));
  EXPECT_THAT(refusal({{"/a", rw}, {"/b", rw}}), HasSubstr("twice"));
  EXPECT_THAT(refusal({{"/1", rw}, {"/2", ro}, {"/3", ro}, {"/4", ro}, {"/5", ro}}), HasSubstr("at most 4"));
  EXPECT_THAT(refusal({{"/" + std::string(2000, 'x'), rw}}), HasSubstr("at most 1024"));
  EXPECT_THAT(refusal({{"/a", {"bad name", "snapshot"}}}), HasSubstr("name"));
}

TEST_F(DrivesTest, ADriveIsConvertedForTheOtherKindOfEngine) {
  using engine::RootfsFormat;
  world.host.engines = {{.name = "namespaces", .isolation_class = 1},
                        {.name = "microvm", .isolation_class = 3, .format = RootfsFormat::kBlock}};
  world.config.isolation = "namespaces";
  Boot();
  const std::string id = MakeId("d");
  auto on = [&](const char* name, const char* engine, const char* mode) {
    CreateSpec spec = With(name, "d", mode);
    spec.isolation.engine = engine;
    auto view = world.Create(spec);
    EXPECT_EQ(world.host.ids().size(), 1U) << "what carried the files is gone";
    const std::string mounted = world.Machine(view)->rootfs.mounts.at(0).name;
    Stop(view);
    return mounted;
  };
  EXPECT_EQ(on("a", "namespaces", "read-write"), id);
  EXPECT_EQ(on("b", "microvm", "snapshot"), id + "-1-block") << "beside the drive snapshot";
  EXPECT_EQ(world.host.formats.at(id + "-1"), RootfsFormat::kDir);
  EXPECT_EQ(on("c", "microvm", "read-write"), id) << "in its place";
  EXPECT_EQ(world.host.formats.at(id), RootfsFormat::kBlock);
  EXPECT_EQ(on("e", "namespaces", "snapshot"), id + "-2-dir");
  EXPECT_EQ(on("f", "namespaces", "read-write"), id);
  EXPECT_EQ(world.host.formats.at(id), RootfsFormat::kDir);
  EXPECT_TRUE(world.Until([&] { return world.host.drives.size() == 2; })) << "the drive, its newest snapshot";
  EXPECT_THAT(world.host.drives, testing::AllOf(Contains(Key(id)), Contains(Key(id + "-3"))));
}

TEST_F(DrivesTest, AVirtualMachineHasRoomForThree) {
  world.host.engines = {{.name = "microvm", .isolation_class = 3, .format = engine::RootfsFormat::kBlock}};
  Boot();
  CreateSpec spec;
  for (const char* name : {"a", "b", "c", "d"}) {
    MakeId(name);
    spec.mounts[std::string("/") + name] = {name, "read-write"};
  }
  auto refused = TryCreate(spec);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kBadRequest);
  EXPECT_THAT(refused.error().message, HasSubstr("8 virtio slots"));
  spec.mounts.erase("/d");
  EXPECT_TRUE(TryCreate(spec));
}

}  // namespace
}  // namespace sandbar::sandbox
