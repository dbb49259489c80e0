#include "spawner/options.h"

#include <gtest/gtest.h>

#include "spawner/disk/layers.h"

namespace sandbar::spawner {
namespace {

std::vector<std::string> With(std::vector<std::string> extra) {
  std::vector<std::string> all = {"--data", "/d", "--images", "/i", "--guest", "/g"};
  all.insert(all.end(), extra.begin(), extra.end());
  return all;
}

TEST(Options, AllOfThem) {
  auto o = ParseOptions(With({"--daemon-uid",
                              "990",
                              "--daemon-gid",
                              "991",
                              "--ephemeral",
                              "--extra-ca",
                              "/ca",
                              "--log",
                              "debug",
                              "--host-share",
                              "50",
                              "--disk-pool-bytes",
                              "12345678901",
                              "--disk-limit",
                              "none",
                              "--force-fallback",
                              "overlay,quota",
                              "--runsc",
                              "/r",
                              "--qemu",
                              "/q",
                              "--vm-start",
                              "boot",
                              "--gvisor-platform",
                              "ptrace"}));
  ASSERT_TRUE(o) << o.error().message;
  EXPECT_EQ(o->daemon_uid, 990U);
  EXPECT_EQ(o->daemon_gid, 991U);
  EXPECT_TRUE(o->ephemeral);
  EXPECT_EQ(o->extra_ca, "/ca");
  EXPECT_EQ(o->log, log::Level::kDebug);
  EXPECT_EQ(o->host_share, 50);
  EXPECT_EQ(o->disk_pool_bytes, 12345678901U);
  EXPECT_FALSE(o->disk_limits);
  EXPECT_EQ(o->runsc, "/r");
  EXPECT_EQ(o->gvisor_platform, "ptrace");
  EXPECT_EQ(o->qemu, "/q");
  EXPECT_FALSE(o->vm_restore);
  EXPECT_EQ(o->force_fallback, (std::set<std::string>{"overlay", "quota"}));
}

TEST(Options, RefusesWhatItDoesNotUnderstand) {
  EXPECT_FALSE(ParseOptions({"--data", "/d"}));
  EXPECT_FALSE(ParseOptions({"--data", "d", "--images", "/i", "--guest", "/g"}));
  for (auto bad : std::vector<std::vector<std::string>>{{"--daemon-uid", "x"},
                                                        {"--daemon-uid", "-1"},
                                                        {"--daemon-uid"},
                                                        {"--nonsense"},
                                                        {"--host-share", "0"},
                                                        {"--host-share", "101"},
                                                        {"--disk-limit", "xfs"},
                                                        {"--vm-start", "fast"},
                                                        {"--force-fallback", "overlay,x"}})
    EXPECT_FALSE(ParseOptions(With(bad))) << bad[0];
}

TEST(Names, OnlyHarmlessOnesBecomeFileNames) {
  for (const char* good : {"a", "sha256:abc", "m-1_x.y", "A0"}) EXPECT_TRUE(ValidId(good, 40)) << good;
  for (const char* bad : {"", ".", "..", ".x", "a/b", "-x", "a b", "a\nb", "ä"}) EXPECT_FALSE(ValidId(bad, 40)) << bad;
  EXPECT_FALSE(ValidId(std::string(41, 'a'), 40));
  EXPECT_FALSE(ValidId(std::string("a\0b", 3), 40));
  for (const char* good : {"sandbox", "a.b-c", "x1"}) EXPECT_TRUE(ValidHostname(good)) << good;
  for (const char* bad : {"", "a_b", "-a", "a-", "a.", "a:b"}) EXPECT_FALSE(ValidHostname(bad)) << bad;
}

}  // namespace
}  // namespace sandbar::spawner
