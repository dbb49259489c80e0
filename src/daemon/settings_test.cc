#include "daemon/settings.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sandbar::daemon {
namespace {

class SettingsTest : public ::testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& text) {
    const std::string path = ::testing::TempDir() + "sandbar-settings-" + name;
    std::ofstream(path) << text;
    return path;
  }
  boost::json::object RecordOf(const cli::ServeCommand& flags) {
    auto config = LoadConfig("/data", flags, ThisHost());
    EXPECT_TRUE(config) << config.error().message;
    auto record = SettingsRecord(*config, flags);
    EXPECT_TRUE(record);
    return *record;
  }
  // "key: running -> asked", with ! for what a restart cannot change.
  std::vector<std::string> Compare(const cli::ServeCommand& flags, const boost::json::object& record) {
    cli::Options options;
    options.data = "/data";
    auto got = CompareSettings(options, flags, record);
    if (!got) return {"error: " + got.error().message};
    std::vector<std::string> out;
    for (const cli::Difference& d : *got)
      out.push_back(d.key + ": " + d.running + " -> " + d.asked + (d.needs_down ? " !" : ""));
    return out;
  }
  using Lines = std::vector<std::string>;
};

TEST_F(SettingsTest, WhatIsAskedAgainIsNoDifference) {
  const cli::ServeCommand flags{.listen = "127.0.0.1:0", .config = File("a", "[limits]\nmax_running = 5\n")};
  EXPECT_EQ(Compare(flags, RecordOf(flags)), Lines{});
  EXPECT_EQ(Compare({.listen = "127.0.0.1:8787"}, RecordOf({})), Lines{}) << "the default value, spelled out";
  EXPECT_EQ(Compare({}, RecordOf(flags)), Lines{}) << "what is not named is not asked for";
}

TEST_F(SettingsTest, EveryKeyThatDiffersIsNamed) {
  const auto record =
      RecordOf({.config = File("b", "[limits]\nmax_running = 5\nhost_share = 50\n[mcp]\nidle = \"1h\"\n")});
  EXPECT_EQ(Compare({.config = File("c", "[limits]\nmax_running = 6\nhost_share = 60\n")}, record),
            (Lines{"limits.host_share: 50 -> 60 !", "limits.max_running: 5 -> 6", "mcp.idle: 1h -> "}));
  EXPECT_EQ(Compare({.listen = "127.0.0.1:9", .isolation = "gvisor"}, record),
            (Lines{"isolation: auto -> gvisor", "server.listen: 127.0.0.1:8787 -> 127.0.0.1:9"}));
}

TEST_F(SettingsTest, SettingsThatCannotBeUsedAreAnError) {
  const auto broken = Compare({.config = File("d", "[limits]\nmax_vcpu = 3\n")}, RecordOf({}));
  ASSERT_EQ(broken.size(), 1U);
  EXPECT_TRUE(broken[0].contains("did you mean `max_vcpus`")) << broken[0];
}

TEST_F(SettingsTest, TheRecordHasTheFlagsForARestart) {
  cli::ServeCommand flags{.listen = "127.0.0.1:1"};
  flags.insecure_http = true;
  flags.ready_fd = 3;
  const auto record = RecordOf(flags);
  EXPECT_EQ(record.at("flags"), (boost::json::object{{"insecure-http", "true"}, {"listen", "127.0.0.1:1"}}));
  EXPECT_EQ(record.at("background"), true);
  flags.lifeline_fd = 4;
  EXPECT_EQ(RecordOf(flags).at("background"), false);
}

// Root starts programs by it: what the server's own user left there does not count.
TEST_F(SettingsTest, OnlyRootsRecordIsRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::string dir = ::testing::TempDir() + "sandbar-record-XXXXXX";
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  const std::string path = dir + "/settings.json";
  std::ofstream(path) << "{\"flags\":{\"config\":\"/evil\"}}";
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  EXPECT_FALSE(ReadRecord(dir));
  ASSERT_TRUE(WriteRecord(dir, {{"flags", boost::json::object{{"listen", "x"}}}}));
  auto read = ReadRecord(dir);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->at("flags").at("listen"), "x");
  std::filesystem::remove(path);
  ASSERT_EQ(::symlink("/etc/hostname", path.c_str()), 0);
  EXPECT_FALSE(ReadRecord(dir));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace sandbar::daemon
