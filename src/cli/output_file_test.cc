#include "cli/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/output.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  OutputFileTest() {
    std::string pattern = (fs::temp_directory_path() / "sandbar-output-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  ~OutputFileTest() override { fs::remove_all(dir_); }
  std::string At(const std::string& name) const { return dir_ + "/" + name; }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  size_t Count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }

  std::string dir_;
};

TEST_F(OutputFileTest, AFileGetsItsNameWhenItIsComplete) {
  std::ofstream(At("f")) << "old";
  {
    auto out = OutputFile::Open(At("f"));
    ASSERT_TRUE(out);
    ASSERT_TRUE(WriteAll(out->fd(), "half"));
    EXPECT_EQ(Read(At("f")), "old");
  }
  EXPECT_EQ(Read(At("f")), "old");
  EXPECT_EQ(Count(), 1U) << "the temporary file is gone";
  {
    auto out = OutputFile::Open(At("f"));
    ASSERT_TRUE(out);
    ASSERT_TRUE(WriteAll(out->fd(), "new"));
    ASSERT_TRUE(out->Commit(OutputFile::About{0640, 1'000'000'000}));
  }
  EXPECT_EQ(Read(At("f")), "new");
  EXPECT_EQ(Count(), 1U);
  struct stat st{};
  ASSERT_EQ(::stat(At("f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0640U);
  EXPECT_EQ(st.st_mtime, 1'000'000'000);
}

TEST_F(OutputFileTest, ADeviceStaysADevice) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make a device";
  ASSERT_EQ(::mknod(At("null").c_str(), S_IFCHR | 0666, makedev(1, 3)), 0);
  ASSERT_EQ(::chmod(At("null").c_str(), 0666), 0) << "whatever the umask is";
  auto out = OutputFile::Open(At("null"));
  ASSERT_TRUE(out) << out.error().message;
  ASSERT_TRUE(WriteAll(out->fd(), "bytes"));
  ASSERT_TRUE(out->Commit(OutputFile::About{0600, 0}));
  struct stat st{};
  ASSERT_EQ(::lstat(At("null").c_str(), &st), 0);
  EXPECT_TRUE(S_ISCHR(st.st_mode));
  EXPECT_EQ(st.st_mode & 0777, 0666U) << "its mode stays too";
  EXPECT_EQ(Count(), 1U);
}

TEST_F(OutputFileTest, APipeAndALinkToADeviceStayWhatTheyAre) {
  ASSERT_EQ(::mkfifo(At("pipe").c_str(), 0600), 0);
  Fd reader(::open(At("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto out = OutputFile::Open(At("pipe"));
  ASSERT_TRUE(out);
  ASSERT_TRUE(WriteAll(out->fd(), "through"));
  ASSERT_TRUE(out->Commit());
  char got[16] = {};
  EXPECT_EQ(::read(reader.get(), got, sizeof got), 7);
  ASSERT_EQ(::symlink("/dev/null", At("link").c_str()), 0);
  auto link = OutputFile::Open(At("link"));
  ASSERT_TRUE(link);
  ASSERT_TRUE(link->Commit());
  EXPECT_TRUE(fs::is_symlink(At("link")));
}

// /dev/stdout of a shell that redirects to a file leads to a regular file. It is neither replaced by another nor
// written from its start.
TEST_F(OutputFileTest, ANameOfAnOpenDescriptorIsWrittenTo) {
  Fd target(::open(At("redirected").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  auto out = OutputFile::Open("/proc/self/fd/" + std::to_string(target.get()));
  ASSERT_TRUE(out) << out.error().message;
  ASSERT_TRUE(WriteAll(target.get(), "before "));
  ASSERT_TRUE(WriteAll(out->fd(), "kept"));
  ASSERT_TRUE(out->Commit());
  ASSERT_TRUE(WriteAll(target.get(), " after"));
  EXPECT_EQ(Read(At("redirected")), "before kept after");
}

TEST_F(OutputFileTest, ANewFileBelowDevIsAFile) {
  const std::string path = "/dev/shm/" + fs::path(dir_).filename().string();
  auto out = OutputFile::Open(path);
  ASSERT_TRUE(out) << out.error().message;
  ASSERT_TRUE(out->Commit());
  EXPECT_TRUE(fs::is_regular_file(path));
  fs::remove(path);
}

TEST_F(OutputFileTest, ADirectoryIsRefusedBeforeAnythingIsWritten) {
  auto out = OutputFile::Open(dir_);
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Code::kBadRequest);
  EXPECT_FALSE(OutputFile::Open(At("no/such/f")));
}

}  // namespace
}  // namespace sandbar::cli
