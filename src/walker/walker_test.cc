// The walker on plain directories: names, order, digests, holes, links. Overlay's own rules are tested with a spawner.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "walker/diff.h"
#include "walker/manifest.h"
#include "walker/text.h"
#include "walker/tree.h"

namespace sandbar::walker {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class WalkerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "sandbar-walker-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    fs::create_directories(dir_ + "/a");
    fs::create_directories(dir_ + "/b");
  }
  void TearDown() override { fs::remove_all(dir_); }

  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(dir_ + "/" + path).parent_path());
    std::ofstream(dir_ + "/" + path) << text;
  }
  Fd Open(const std::string& path, int flags = O_RDONLY | O_DIRECTORY) const {
    return Fd(::open((dir_ + "/" + path).c_str(), flags | O_CLOEXEC, 0600));
  }
  std::vector<std::string> Diff() const {
    std::vector<Fd> before, after;
    before.push_back(Open("a"));
    after.push_back(Open("b"));
    std::vector<std::string> out;
    auto add = [&](const Change& c) -> Result<> {
      out.push_back(std::string(1, c.kind) + c.type + c.path);
      return {};
    };
    EXPECT_TRUE(walker::Diff(before, after, add));
    return out;
  }
  std::string dir_;
};

TEST(WalkerText, NamesBecomeWords) {
  EXPECT_EQ(Escape("/a b/%\n\xff~"), "/a%20b/%25%0A%FF~");
  EXPECT_TRUE(PathLess("/a", "/a/b"));
  EXPECT_TRUE(PathLess("/a/b", "/a-b")) << "what is in a directory comes before its next sibling";
  EXPECT_FALSE(PathLess("/a-b", "/a/b"));
  EXPECT_FALSE(PathLess("/a", "/a"));
}

TEST_F(WalkerTest, TheOrderIsThatOfPaths) {
  for (const char* name : {"a/x/1", "a/x-y", "a/x y", "a/x/2/3", "a/A", "a/~"}) Write(name, "text");
  Fd dir = Open("a");
  std::vector<std::string> paths;
  Tree tree(dir.get(), [&](const Entry& entry) -> Result<> {
    paths.push_back(entry.path);
    return {};
  });
  ASSERT_TRUE(tree.Walk());
  EXPECT_THAT(paths, ElementsAre("/", "/A", "/x", "/x/1", "/x/2", "/x/2/3", "/x%20y", "/x-y", "/~"));
  EXPECT_TRUE(std::ranges::is_sorted(paths, PathLess));
  EXPECT_EQ(tree.files(), 6U);
}

TEST_F(WalkerTest, HolesAndFurtherNamesAreNotRead) {
  Write("a/one", "content");
  fs::create_hard_link(dir_ + "/a/one", dir_ + "/a/two");
  Fd huge = Open("a/huge", O_RDWR | O_CREAT);
  ASSERT_EQ(::ftruncate(huge.get(), 1LL << 42), 0);
  ASSERT_EQ(::pwrite(huge.get(), "x", 1, 1LL << 41), 1);
  Fd dir = Open("a");
  std::map<std::string, std::string> lines;
  Tree tree(dir.get(), [&](const Entry& entry) -> Result<> {
    lines[entry.path] = entry.rest;
    return {};
  });
  ASSERT_TRUE(tree.Walk());
  EXPECT_EQ(lines["/one"], lines["/two"]);
  // sha256 of "content"
  EXPECT_THAT(lines["/one"], HasSubstr("ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"));
  EXPECT_THAT(lines["/huge"], HasSubstr(" sparse:"));
  EXPECT_LT(tree.bytes(), 1U << 20);
}

TEST_F(WalkerTest, ACheckComparesEveryLine) {
  for (const char* name : {"a/d/1", "a/d/2", "a/e"}) Write(name, "text");
  Fd dir = Open("a");
  Fd out = Open("manifest", O_RDWR | O_CREAT);
  auto written = WriteManifest(dir.get(), out.get());
  ASSERT_TRUE(written) << written.error().message;
  auto check = [&] {
    Fd manifest = Open("manifest", O_RDONLY);
    auto report = CheckManifest(dir.get(), manifest.get());
    EXPECT_TRUE(report);
    return report ? *report : Report{};
  };
  auto same = check();
  EXPECT_EQ(same.differences, 0U);
  EXPECT_EQ(same.digest, written->digest);
  struct stat st{};
  ASSERT_EQ(::stat((dir_ + "/a/d").c_str(), &st), 0);
  fs::remove(dir_ + "/a/d/2");
  Write("a/d/3", "text");
  std::array<timespec, 2> times = {st.st_atim, st.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, (dir_ + "/a/d").c_str(), times.data(), 0), 0);
  ::chmod((dir_ + "/a/e").c_str(), 0600);
  EXPECT_THAT(check().first, ElementsAre("missing /d/2", "unknown /d/3", "changed /e"));
}

TEST_F(WalkerTest, ADiffOfTwoTrees) {
  Write("a/same", "1");
  Write("b/same", "1");
  Write("a/content", "1");
  Write("b/content", "2");
  Write("a/gone/deep", "1");
  Write("b/new/deep", "1");
  Write("a/kind", "1");
  fs::create_symlink("same", dir_ + "/b/kind");
  EXPECT_THAT(Diff(), ElementsAre("Dd/gone", "Mf/content", "Ml/kind", "Ad/new", "Af/new/deep"));
}

}  // namespace
}  // namespace sandbar::walker
