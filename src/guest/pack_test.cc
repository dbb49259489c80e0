// Trees of files out of one directory and into another.
#include "guest/pack.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/fd.h"
#include "wire/tree.h"

namespace sandbar::guest {
namespace {

namespace fs = std::filesystem;

class PackTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "pack-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir = pattern;
    for (const char* name : {"upper", "merged", "to"}) fs::create_directory(dir / name);
  }
  void TearDown() override { fs::remove_all(dir); }

  void Write(const fs::path& path, std::string_view text) {
    fs::create_directories((dir / path).parent_path());
    std::ofstream(dir / path) << text;
  }
  std::string Read(const fs::path& path) {
    std::ifstream in(dir / path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Fd Open(const char* name) { return Fd(::open((dir / name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
  Result<> Unpack(std::string bytes) {
    int ends[2];
    if (::pipe(ends) != 0) return FailErrno("pipe");
    Fd read_end(ends[0]), write_end(ends[1]);
    std::thread feeder([&bytes, end = std::move(write_end)] {
      for (size_t at = 0; at < bytes.size();) {
        ssize_t n = ::write(end.get(), bytes.data() + at, bytes.size() - at);
        if (n <= 0) return;
        at += static_cast<size_t>(n);
      }
    });
    auto done = UnpackFrom(read_end.get(), dir / "to");
    read_end.Reset();
    feeder.join();
    return done;
  }
  static PackOut Into(std::string& bytes) {
    return [&bytes](std::string_view more) -> Result<> {
      bytes += more;
      return {};
    };
  }

  fs::path dir;
};

TEST_F(PackTest, EverythingOfATree) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  Write("merged/d/f", "hello");
  ASSERT_EQ(::chown((dir / "merged/d/f").c_str(), 1234, 2345), 0);
  ASSERT_EQ(::chmod((dir / "merged/d/f").c_str(), 04711), 0);
  const bool attributes = ::setxattr((dir / "merged/d/f").c_str(), "user.a", "b", 1, 0) == 0;
  fs::create_hard_link(dir / "merged/d/f", dir / "merged/hard");
  fs::create_symlink("d/f", dir / "merged/soft");
  ASSERT_EQ(::mkfifo((dir / "merged/pipe").c_str(), 0640), 0);
  ASSERT_EQ(::mknod((dir / "merged/null").c_str(), S_IFCHR | 0666, makedev(1, 3)), 0);
  Write("merged/sparse", "");
  fs::resize_file(dir / "merged/sparse", 20 << 20);
  timespec times[2] = {{100, 5}, {100, 5}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (dir / "merged/d").c_str(), times, 0), 0);

  std::string bytes;
  ASSERT_TRUE(PackAll(Open("merged").get(), Into(bytes)));
  EXPECT_LT(bytes.size(), 100'000U) << "holes are not carried";
  auto done = Unpack(std::move(bytes));
  ASSERT_TRUE(done) << done.error().message;
  struct stat st{};
  ASSERT_EQ(::stat((dir / "to/d/f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 04711U);
  EXPECT_EQ(st.st_uid, 1234U);
  EXPECT_EQ(st.st_gid, 2345U);
  EXPECT_EQ(st.st_nlink, 2U);
  EXPECT_EQ(Read("to/hard"), "hello");
  EXPECT_EQ(fs::read_symlink(dir / "to/soft"), "d/f");
  EXPECT_TRUE(fs::is_fifo(dir / "to/pipe"));
  EXPECT_FALSE(fs::exists(dir / "to/null")) << "devices stay where they are";
  ASSERT_EQ(::stat((dir / "to/sparse").c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 20 << 20);
  EXPECT_LT(st.st_blocks, 1000);
  ASSERT_EQ(::stat((dir / "to/d").c_str(), &st), 0);
  EXPECT_EQ(st.st_mtim.tv_sec, 100);
  char value[8] = {};
  if (attributes) {
    EXPECT_EQ(::getxattr((dir / "to/d/f").c_str(), "user.a", value, sizeof value), 1);
  }
}

// `upper` says what was changed, `merged` what became of it, `to` holds the image.
TEST_F(PackTest, WhatWasWrittenOverAnImage) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  for (const char* file : {"to/keep/f", "to/gone/f", "to/new/old", "to/moved/old", "to/dir/f", "to/file"})
    Write(file, "image");
  ASSERT_EQ(::mknod((dir / "upper/gone").c_str(), S_IFCHR, makedev(0, 0)), 0);
  for (const char* file : {"keep/mine", "new/mine", "file/now/a/directory", "dir"}) {
    Write(fs::path("upper") / file, "upper");
    Write(fs::path("merged") / file, "seen");
  }
  Write("merged/keep/f", "image");
  Write("merged/moved/from", "elsewhere");
  fs::create_directory(dir / "upper/moved");
  if (::setxattr((dir / "upper/new").c_str(), "trusted.overlay.opaque", "y", 1, 0) != 0 ||
      ::setxattr((dir / "upper/moved").c_str(), "trusted.overlay.redirect", "/x", 2, 0) != 0)
    GTEST_SKIP() << "no trusted attributes here";
  std::string bytes;
  ASSERT_TRUE(PackWritten(Open("upper").get(), Open("merged").get(), Into(bytes)));
  auto done = Unpack(std::move(bytes));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(Read("to/keep/f"), "image");
  EXPECT_EQ(Read("to/keep/mine"), "seen");
  EXPECT_FALSE(fs::exists(dir / "to/gone"));
  EXPECT_EQ(Read("to/new/mine"), "seen");
  EXPECT_FALSE(fs::exists(dir / "to/new/old"));
  EXPECT_EQ(Read("to/moved/from"), "elsewhere");
  EXPECT_FALSE(fs::exists(dir / "to/moved/old"));
  EXPECT_EQ(Read("to/file/now/a/directory"), "seen");
  EXPECT_EQ(Read("to/dir"), "seen");
}

TEST_F(PackTest, AHostileTreeStaysBelowItsPlace) {
  Write("outside/f", "safe");
  wire::TreeEntry link;
  link.kind = wire::TreeKind::kSymlink;
  link.path = "way";
  link.target = (dir / "outside").string();
  wire::TreeEntry file;
  file.kind = wire::TreeKind::kFile;
  file.path = "way/f";
  file.mode = 0644;
  std::string bytes = wire::EncodeTreeEntry(link) + wire::EncodeTreeEntry(file) + wire::EncodeTreePiece(0, "evil") +
                      wire::EncodeTreePiece(4, "") + wire::EncodeTreeEntry({});
  EXPECT_FALSE(Unpack(std::move(bytes)));
  EXPECT_EQ(Read("outside/f"), "safe");
  EXPECT_FALSE(Unpack("rubbish")) << "and what is no tree is refused";
}

}  // namespace
}  // namespace sandbar::guest
