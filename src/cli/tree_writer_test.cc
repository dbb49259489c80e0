// A hostile archive must not change anything outside of the directory that it is unpacked into.
#include "cli/tree_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;
using wire::TarEntry;

class TreeWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sandbar-tree-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    fs::create_directories(dir_ / "to");
    fs::create_directories(dir_ / "outside");
    std::ofstream(dir_ / "outside/precious") << "precious";
  }
  void TearDown() override {
    EXPECT_EQ(Read(dir_ / "outside/precious"), "precious");
    EXPECT_EQ(std::distance(fs::directory_iterator(dir_ / "outside"), {}), 1) << "nothing was added outside";
    for (const auto& e : fs::recursive_directory_iterator(dir_))
      EXPECT_EQ(e.path().string().find(".sandbar-cp-"), std::string::npos) << e.path();
    fs::remove_all(dir_);
  }

  static std::string Read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string File(const std::string& name, const std::string& bytes, uint32_t mode = 0644) {
    TarEntry entry{name};
    entry.mode = mode;
    entry.size = bytes.size();
    return wire::TarHeader(entry) + bytes + wire::TarPadding(bytes.size());
  }
  static std::string Dir(const std::string& name, uint32_t mode = 0755) {
    TarEntry entry{name};
    entry.directory = true;
    entry.mode = mode;
    entry.mtime = 1'000'000'000;
    entry.mtime_given = true;
    return wire::TarHeader(entry);
  }
  static std::string Link(const std::string& name, const std::string& target) {
    TarEntry entry{name};
    entry.kind = TarEntry::Kind::kSymlink;
    entry.target = target;
    return wire::TarHeader(entry);
  }
  // Another type, or other raw bytes, in a header of ours.
  static std::string Patch(std::string header, size_t at, std::string_view with) {
    header.replace(at, with.size(), with);
    std::fill(header.begin() + 148, header.begin() + 156, ' ');
    unsigned sum = 0;
    for (size_t i = 0; i < wire::kTarBlock; ++i) sum += static_cast<unsigned char>(header[i]);
    std::snprintf(header.data() + 148, 8, "%06o", sum);
    return header;
  }

  // Empty when the whole archive could be read.
  std::string Unpack(const std::string& archive) {
    Fd to(::open((dir_ / "to").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    TreeWriter writer(std::move(to));
    wire::TarReader tar(&writer, TreeWriter::kTakes);
    auto done = tar.Feed(archive + wire::TarEnd());
    if (done) done = tar.Finish();
    if (done) done = writer.Finish();
    left_out_ = writer.left_out();
    return done ? "" : done.error().message;
  }
  std::string Outside(const std::string& name = "") { return (dir_ / "outside" / name).string(); }

  fs::path dir_;
  std::vector<std::string> left_out_;
};

TEST_F(TreeWriterTest, AllOfATreeArrives) {
  const std::string odd = "odd \xff\n'\"name";
  ASSERT_EQ(Unpack(Dir("d", 0750) + Dir("d/empty", 0555) + File("d/run", "#!", 0755) + File("d/secret", "s", 0600) +
                   Link("d/rel", "run") + Link("d/abs", "/etc/passwd") + Link("d/none", "nowhere") + File(odd, "o") +
                   File("no/parents/named", "p") + Dir("closed", 0500) + File("closed/in", "i")),
            "");
  EXPECT_TRUE(left_out_.empty());
  const fs::path to = dir_ / "to";
  EXPECT_EQ(fs::status(to / "d").permissions(), fs::perms(0750));
  EXPECT_EQ(fs::status(to / "d/empty").permissions(), fs::perms(0555));
  EXPECT_EQ(fs::status(to / "d/run").permissions(), fs::perms(0755));
  EXPECT_EQ(fs::status(to / "d/secret").permissions(), fs::perms(0600));
  EXPECT_EQ(fs::status(to / "closed").permissions(), fs::perms(0500));
  EXPECT_EQ(fs::read_symlink(to / "d/rel"), "run");
  EXPECT_EQ(fs::read_symlink(to / "d/abs"), "/etc/passwd");
  EXPECT_EQ(fs::read_symlink(to / "d/none"), "nowhere");
  EXPECT_EQ(Read(to / odd), "o");
  EXPECT_EQ(Read(to / "no/parents/named"), "p");
  EXPECT_EQ(Read(to / "closed/in"), "i");
  struct stat st{};
  ASSERT_EQ(::stat((to / "d").c_str(), &st), 0);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'000'000'000);
}

TEST_F(TreeWriterTest, ALinkOfTheArchiveIsNotFollowed) {
  ASSERT_EQ(
      Unpack(Link("way", Outside()) + File("way/precious", "overwritten") + File("way/new", "n") + Dir("way/dir") +
             Link("way/link", "x") + Link("up", "..") + File("up/outside/precious", "o") + File("good", "g")),
      "");
  EXPECT_EQ(left_out_.size(), 5U);
  EXPECT_EQ(Read(dir_ / "to/good"), "g") << "the rest arrives";
}

TEST_F(TreeWriterTest, ALinkThatIsThereIsReplacedNotWrittenThrough) {
  ASSERT_EQ(::symlink(Outside("precious").c_str(), (dir_ / "to/file").c_str()), 0);
  ASSERT_EQ(::symlink(Outside().c_str(), (dir_ / "to/dir").c_str()), 0);
  ASSERT_EQ(::link(Outside("precious").c_str(), (dir_ / "to/hard").c_str()), 0);
  ASSERT_EQ(Unpack(File("file", "new") + Dir("dir", 0777) + File("dir/precious", "new") + File("hard", "new") +
                   Link("dir", "elsewhere")),
            "");
  EXPECT_FALSE(fs::is_symlink(dir_ / "to/file"));
  EXPECT_EQ(Read(dir_ / "to/file"), "new");
  EXPECT_EQ(Read(dir_ / "to/hard"), "new");
  EXPECT_EQ(fs::read_symlink(dir_ / "to/dir"), "elsewhere");
  EXPECT_EQ(left_out_.size(), 2U) << "a link stands where a directory should be";
  EXPECT_NE(fs::status(dir_ / "outside").permissions(), fs::perms(0777));
}

TEST_F(TreeWriterTest, NamesThatLeaveTheDirectoryAreRefused) {
  for (const char* name : {"../outside/precious", "a/../../outside/precious", "/etc/sandbar-test", ".."})
    EXPECT_NE(Unpack(File(name, "x")), "") << name;
}

TEST_F(TreeWriterTest, NoSetuidNoDevicesNoHardLinks) {
  const std::string raw = Patch(File("setuid", "", 0755), 100, "0006777");
  ASSERT_EQ(Unpack(raw + Patch(File("device", ""), 156, "3") + Patch(File("pipe", ""), 156, "6") +
                   Patch(Patch(File("hard", ""), 157, Outside("precious")), 156, "1")),
            "");
  EXPECT_EQ(fs::status(dir_ / "to/setuid").permissions(), fs::perms(0777));
  EXPECT_EQ(left_out_.size(), 3U);
  for (const char* name : {"device", "pipe", "hard"}) EXPECT_FALSE(fs::exists(dir_ / "to" / name)) << name;
}

TEST_F(TreeWriterTest, WhatIsThereAndCannotBeReplacedIsNamed) {
  fs::create_directories(dir_ / "to/dir/full");
  fs::permissions(dir_ / "to/dir", fs::perms(0700));
  std::ofstream(dir_ / "to/file") << "old";
  ASSERT_EQ(Unpack(File("dir", "x") + Dir("file") + File("file/x", "x") + Link("dir", "x") + Dir("dir", 0777)), "");
  EXPECT_EQ(left_out_.size(), 4U);
  EXPECT_EQ(Read(dir_ / "to/file"), "old");
  EXPECT_EQ(fs::status(dir_ / "to/dir").permissions(), fs::perms(0700)) << "a directory that was there keeps its mode";
}

TEST_F(TreeWriterTest, AnArchiveThatEndsEarlyLeavesNoHalfFile) {
  std::ofstream(dir_ / "to/file") << "old";
  const std::string whole = File("file", std::string(5000, 'n'));
  Fd to(::open((dir_ / "to").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  {
    TreeWriter writer(std::move(to));
    wire::TarReader tar(&writer, TreeWriter::kTakes);
    ASSERT_TRUE(tar.Feed(whole.substr(0, 3000)));
    EXPECT_FALSE(tar.Finish());
  }
  EXPECT_EQ(Read(dir_ / "to/file"), "old");
}

}  // namespace
}  // namespace sandbar::cli
