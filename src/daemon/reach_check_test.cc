#include "daemon/reach_check.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace sandbar::daemon {
namespace {

namespace fs = std::filesystem;
constexpr Identity kNobody{65534, 65534};

TEST(ReachCheck, NamesTheDirectoryThatIsClosed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::string pattern = (fs::temp_directory_path() / "sandbar-reach-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const fs::path dir(pattern);
  auto check = [&](const std::string& path, bool itself) {
    auto reached = CheckReachable("nobody", kNobody, "the data", path, itself, "move it");
    return reached ? "" : reached.error().message;
  };
  fs::create_directories(dir / "open/closed/data");
  ::chmod(dir.c_str(), 0711);
  ::chmod((dir / "open").c_str(), 0755);
  ::chmod((dir / "open/closed").c_str(), 0700);
  const std::string data = (dir / "open/closed/data").string();
  const std::string said = check(data, false);
  EXPECT_TRUE(said.contains("'nobody' cannot enter " + (dir / "open/closed").string() + ",")) << said;
  EXPECT_TRUE(said.contains("fix: move it; or open that one: chmod o+x " + (dir / "open/closed").string())) << said;
  ::chmod((dir / "open/closed").c_str(), 0711);
  EXPECT_EQ(check(data, false), "");
  EXPECT_EQ(check((dir / "open/not/there/yet").string(), false), "");
  ::chmod(data.c_str(), 0700);
  EXPECT_EQ(check(data, false), "") << "the directory itself is the server's to make right";
  EXPECT_TRUE(check(data, true).contains("cannot read " + data)) << check(data, true);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace sandbar::daemon
