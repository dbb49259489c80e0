// The scanner on plain directories: names, order, digests, holes, links. Overlay's own rules are tested with a spawner.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "layer_scanner/diff.h"
#include "layer_scanner/manifest.h"
#include "layer_scanner/text.h"
#include "layer_scanner/tree.h"

namespace sandbar::layer_scanner {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class ScannerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "sandbar-scanner-XXXXXX";
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
    EXPECT_TRUE(layer_scanner::Diff(before, after, add));
    return out;
  }
  std::string dir_;
};

TEST(ScannerText, NamesBecomeWords) {
  EXPECT_EQ(Escape("/a b/%\n\xff~"), "/a%20b/%25%0A%FF~");
  EXPECT_TRUE(PathLess("/a", "/a/b"));
  EXPECT_TRUE(PathLess("/a/b", "/a-b")) << "what is in a directory comes before its next sibling";
  EXPECT_FALSE(PathLess("/a-b", "/a/b"));
  EXPECT_FALSE(PathLess("/a", "/a"));
}

TEST_F(ScannerTest, TheOrderIsThatOfPaths) {
  for (const char* name : {"a/x/1", "a/x-y", "a/x y", "a/x/2/3", "a/A", "a/~"}) Write(name, "text");
  Fd dir = Open("a");
  std::vector<std::string> paths;
  Tree tree(dir.get(), ScanLimits{}, [&](const Entry& entry) -> Result<> {
    paths.push_back(entry.path);
    return {};
  });
  ASSERT_TRUE(tree.Scan());
  EXPECT_THAT(paths, ElementsAre("/", "/A", "/x", "/x/1", "/x/2", "/x/2/3", "/x%20y", "/x-y", "/~"));
  EXPECT_TRUE(std::ranges::is_sorted(paths, PathLess));
  EXPECT_EQ(tree.files(), 6U);
}

TEST_F(ScannerTest, HolesAndFurtherNamesAreNotRead) {
  Write("a/one", "content");
  fs::create_hard_link(dir_ + "/a/one", dir_ + "/a/two");
  Fd huge = Open("a/huge", O_RDWR | O_CREAT);
  ASSERT_EQ(::ftruncate(huge.get(), 1LL << 42), 0);
  ASSERT_EQ(::pwrite(huge.get(), "x", 1, 1LL << 41), 1);
  Fd dir = Open("a");
  std::map<std::string, std::string> lines;
  Tree tree(dir.get(), ScanLimits{}, [&](const Entry& entry) -> Result<> {
    lines[entry.path] = entry.rest;
    return {};
  });
  ASSERT_TRUE(tree.Scan());
  EXPECT_EQ(lines["/one"], lines["/two"]);
  // sha256 of "content"
  EXPECT_THAT(lines["/one"], HasSubstr("ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"));
  EXPECT_THAT(lines["/huge"], HasSubstr(" sparse:"));
  EXPECT_LT(tree.bytes(), 1U << 20);
}

// What a scan costs is bounded by what is allocated: a file of 8 TB that has a block here and there is read block by
// block.
TEST_F(ScannerTest, OnlyAllocatedBlocksAreRead) {
  constexpr int kBlocks = 64;
  Fd file = Open("a/sparse", O_RDWR | O_CREAT);
  ASSERT_EQ(::ftruncate(file.get(), 8LL << 40), 0);
  const std::string block(4096, 'x');
  for (int i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(::pwrite(file.get(), block.data(), block.size(), i * (100LL << 30) / 4096 * 4096), 4096);
  }
  ASSERT_EQ(::fsync(file.get()), 0);
  Fd dir = Open("a");
  auto nothing = [](const Entry&) -> Result<> { return {}; };
  ScanLimits enough, less;
  enough.read_bytes = kBlocks * 4096;
  less.read_bytes = enough.read_bytes - 1;
  EXPECT_TRUE(Tree(dir.get(), enough, nothing).Scan());
  EXPECT_EQ(Tree(dir.get(), less, nothing).Scan().error().code, Code::kTooLarge);
}

// A guest can have as many names as its disk holds. What is remembered is one digest for a file with names to come, and
// the names of the directories that are being scanned; there is an end to both, and to time.
TEST_F(ScannerTest, MemoryAndTimeAreBounded) {
  constexpr size_t kFiles = 500, kNames = 20;
  for (size_t i = 0; i < kFiles; ++i) {
    const std::string name = "/a/" + std::to_string(i) + "-";
    std::ofstream(dir_ + name + "0") << i;
    for (size_t n = 1; n < kNames; ++n) fs::create_hard_link(dir_ + name + "0", dir_ + name + std::to_string(n));
  }
  Fd dir = Open("a");
  std::map<std::string, std::string> lines;
  auto keep = [&](const Entry& entry) -> Result<> {
    lines[entry.path] = entry.rest;
    return {};
  };
  Tree whole(dir.get(), ScanLimits{}, keep);
  ASSERT_TRUE(whole.Scan());
  EXPECT_EQ(whole.files(), kFiles * kNames);
  EXPECT_EQ(whole.bytes(), kFiles * 4096) << "each file once";
  for (size_t i = 0; i < kFiles; i += 7)
    for (size_t n = 1; n < kNames; ++n)
      EXPECT_EQ(lines["/" + std::to_string(i) + "-" + std::to_string(n)], lines["/" + std::to_string(i) + "-0"]);
  auto refused = [&](ScanLimits limits) {
    auto scanned = Tree(dir.get(), limits, keep).Scan();
    return !scanned && scanned.error().code == Code::kTooLarge;
  };
  EXPECT_TRUE(refused({.name_bytes = 4096}));
  EXPECT_TRUE(refused({.until_ms = 1}));
  // Names far apart: every file has one before and one behind all others.
  for (size_t i = 0; i < kFiles; ++i)
    fs::create_hard_link(dir_ + "/a/" + std::to_string(i) + "-0", dir_ + "/a/z" + std::to_string(i));
  EXPECT_TRUE(refused({.links = kFiles - 1}));
  EXPECT_FALSE(refused({.links = kFiles}));
}

TEST(ScannerText, TheOrderOfNamesIsThatOfTheirEscapedForms) {
  const std::string names[] = {"",      "a",     "a ", "a%", "a-",       "a$", "a\xff",
                               "a\x01", "a\x7f", "A",  "~",  "\xc3\xa4", "a!", "ab"};
  for (const std::string& a : names)
    for (const std::string& b : names) EXPECT_EQ(EscapedLess(a, b), Escape(a) < Escape(b)) << a << " " << b;
}

TEST_F(ScannerTest, ACheckComparesEveryLine) {
  for (const char* name : {"a/d/1", "a/d/2", "a/e"}) Write(name, "text");
  Fd dir = Open("a");
  Fd out = Open("manifest", O_RDWR | O_CREAT);
  auto written = WriteManifest(dir.get(), out.get(), ScanLimits{});
  ASSERT_TRUE(written) << written.error().message;
  auto check = [&] {
    Fd manifest = Open("manifest", O_RDONLY);
    auto report = CheckManifest(dir.get(), manifest.get(), ScanLimits{});
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

TEST_F(ScannerTest, ADiffOfTwoTrees) {
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
}  // namespace sandbar::layer_scanner
