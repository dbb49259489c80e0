#include "protocol/spawner_messages.h"

#include <gtest/gtest.h>

namespace sandbar::protocol {
namespace {

std::vector<SpawnerRequest> EveryRequest() {
  MachineLimits limits{2, 3ULL << 30, 400, 5ULL << 40};
  return {HelloReq{7},
          BootReq{"m1", limits, 123456789012, kGvisorEngine},
          ConfigureReq{"m1", {"a", "b"}, "sha256:x", "host", {"snap_1"}, {{"drv_1", "/data", true, 1000, 1001}}, true},
          ListReq{},
          AttachReq{"m1"},
          SetLimitsReq{"m1", limits},
          SetDeadlineReq{"m1", -5},
          UsageReq{"m1"},
          PauseReq{"m1", false},
          DestroyReq{"m1", "snap_1"},
          DialReq{"m1", 8080, true},
          ShutdownReq{},
          ListSnapshotsReq{"snap_1"},
          RemoveSnapshotReq{"snap_1", true},
          FlattenReq{{"snap_2", "snap_1"}, "flat_1"},
          CreateDriveReq{"drv_1", 5ULL << 40},
          SnapshotDriveReq{"drv_1", "drv_1-1"},
          RemoveDriveReq{"drv_1"},
          ListDrivesReq{"drv_1"},
          ManifestReq{"snap_1", true},
          DiffReq{{"a", "b"}, {"c"}, {"i"}, {"j"}},
          ToBlockReq{"snap_1", "snap_1-block", true, 5ULL << 40},
          DriveFormatReq{"drv_1"},
          ReplaceDriveReq{"drv_1", "drv_1-new"},
          MemorySnapshotReq{"m1", "snap_1", false},
          AssignReq{"m1", 7, 5ULL << 40}};
}

std::vector<SpawnerResponse> EveryResponse() {
  return {OkResp{},
          HelloResp{1, "inst", "btrfs", "v2", true, {{kMicrovmEngine, "microvm", 3, false, "no /dev/kvm"}}},
          ErrorResp{3, "no", 13},
          BootResp{"/a/b.sock", "c0ffee"},
          ListResp{{{"m1", 2, 77, 9999999999ULL}, {"m2", 0, 0, 0}}},
          UsageResp{1, 2, 3, 4, 5, 6},
          ExitedEvent{"m1", 137, true},
          SnapshotsResp{{"snap_1", "snap_2"}},
          MemorySnapshotResp{17, 5ULL << 40}};
}

TEST(Protocol, EveryRequestSurvivesTheRoundTrip) {
  ASSERT_EQ(EveryRequest().size(), std::variant_size_v<SpawnerRequest>);
  for (auto& body : EveryRequest()) {
    std::string bytes = Encode(TaggedRequest{42, body});
    auto back = DecodeRequest(bytes);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->tag, 42U);
    EXPECT_EQ(back->body.index(), body.index());
    EXPECT_EQ(Encode(*back), bytes);
  }
}

TEST(Protocol, FieldsKeepTheirValues) {
  auto boot = DecodeRequest(Encode(TaggedRequest{1, EveryRequest()[1]}));
  ASSERT_TRUE(boot);
  const auto& b = std::get<BootReq>(boot->body);
  EXPECT_EQ(b.machine, "m1");
  EXPECT_EQ(b.limits.vcpus, 2U);
  EXPECT_EQ(b.limits.memory_bytes, 3ULL << 30);
  EXPECT_EQ(b.limits.pids, 400U);
  EXPECT_EQ(b.limits.disk_bytes, 5ULL << 40);
  EXPECT_EQ(b.deadline_ms, 123456789012);
  auto configure = DecodeRequest(Encode(TaggedRequest{1, EveryRequest()[2]}));
  ASSERT_TRUE(configure);
  EXPECT_EQ(std::get<ConfigureReq>(configure->body).layers, (std::vector<std::string>{"a", "b"}));
  const auto& mounts = std::get<ConfigureReq>(configure->body).mounts;
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].path, "/data");
  EXPECT_EQ(mounts[0].gid, 1001U);
  auto list = DecodeResponse(Encode(TaggedResponse{1, EveryResponse()[4]}));
  ASSERT_TRUE(list);
  const auto& machines = std::get<ListResp>(list->body).machines;
  ASSERT_EQ(machines.size(), 2U);
  EXPECT_EQ(machines[0].start_time, 9999999999ULL);
}

TEST(Protocol, EveryResponseSurvivesTheRoundTrip) {
  ASSERT_EQ(EveryResponse().size(), std::variant_size_v<SpawnerResponse>);
  for (auto& body : EveryResponse()) {
    std::string bytes = Encode(TaggedResponse{0, body});
    auto back = DecodeResponse(bytes);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->body.index(), body.index());
    EXPECT_EQ(Encode(*back), bytes);
  }
}

TEST(Protocol, EveryCutIsRefusedAndFieldsOfLaterVersionsAreIgnored) {
  for (auto& body : EveryRequest()) {
    std::string bytes = Encode(TaggedRequest{1, body});
    for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(DecodeRequest(bytes.substr(0, n))) << n;
    EXPECT_TRUE(DecodeRequest(bytes + "later"));
  }
  for (auto& body : EveryResponse()) {
    std::string bytes = Encode(TaggedResponse{1, body});
    for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(DecodeResponse(bytes.substr(0, n))) << n;
    EXPECT_TRUE(DecodeResponse(bytes + "later"));
  }
}

TEST(Protocol, LimitsAreChecked) {
  ConfigureReq many;
  many.machine = "m";
  many.layers.assign(kMaxLayers + 1, "l");
  EXPECT_FALSE(DecodeRequest(Encode(TaggedRequest{1, many})));
  EXPECT_FALSE(DecodeRequest(Encode(TaggedRequest{1, DestroyReq{std::string(129, 'x')}})));
  EXPECT_TRUE(DecodeRequest(Encode(TaggedRequest{1, DestroyReq{std::string(128, 'x')}})));
  std::string unknown = Encode(TaggedRequest{1, ListReq{}});
  unknown[4] = 99;
  EXPECT_FALSE(DecodeRequest(unknown));
  // A count that promises more entries than there are bytes.
  std::string list = Encode(TaggedResponse{1, ListResp{}});
  list[5] = 100;
  EXPECT_FALSE(DecodeResponse(list));
}

}  // namespace
}  // namespace sandbar::protocol
