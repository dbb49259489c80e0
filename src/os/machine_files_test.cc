#include "os/machine_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace sandbar::os {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Slurp(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

int Count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

class SizeTemplate : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sandbar-sizes-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

TEST_F(SizeTemplate, ShowsTheMachinesSize) {
  auto made = EnsureSizeTemplate(dir_, 3, 2ull << 30);
  ASSERT_TRUE(made) << made.error().message;
  const std::string cpuinfo = Slurp(*made + "/proc/cpuinfo");
  EXPECT_EQ(Count("\n" + cpuinfo, "\nprocessor\t: "), 3);
  EXPECT_THAT(cpuinfo, HasSubstr("siblings\t: 3\n"));
  EXPECT_THAT(cpuinfo, HasSubstr("flags\t\t: "));
  EXPECT_THAT(cpuinfo, Not(HasSubstr("microcode")));
  EXPECT_THAT(Slurp(*made + "/proc/meminfo"), HasSubstr("MemTotal:        2097152 kB\n"));
  EXPECT_EQ(Count(Slurp(*made + "/proc/stat"), "\ncpu"), 3);
  EXPECT_THAT(Slurp(*made + "/proc/stat"), Not(HasSubstr("btime 0\n")));
  EXPECT_EQ(Slurp(*made + "/sys/devices/system/cpu/online"), "0-2\n");
  EXPECT_EQ(Slurp(*made + "/sys/fs/cgroup/memory.max"), "2147483648\n");
  EXPECT_EQ(Slurp(*made + "/sys/fs/cgroup/cpu.max"), "300000 100000\n");
  EXPECT_EQ(Slurp(*made + "/sys/fs/cgroup/../cmds/memory.max"), "2147483648\n");
  EXPECT_EQ(Slurp(*made + "/sys/fs/cgroup/memory/../cmds/memory.limit_in_bytes"), "2147483648\n");
}

TEST_F(SizeTemplate, NothingOfTheHostsCommandLine) {
  auto made = EnsureSizeTemplate(dir_, 1, 512ull << 20);
  ASSERT_TRUE(made);
  EXPECT_EQ(Slurp(*made + "/proc/cmdline"), "quiet\n");
  EXPECT_EQ(Slurp(*made + "/sys/devices/system/cpu/online"), "0\n");
}

TEST_F(SizeTemplate, MemoryFiguresAreConsistent) {
  auto made = EnsureSizeTemplate(dir_, 1, 256ull << 20);
  ASSERT_TRUE(made);
  std::ifstream in(*made + "/proc/meminfo");
  std::map<std::string, uint64_t> values;
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string key;
    uint64_t value = 0;
    ASSERT_TRUE(words >> key >> value) << line;
    values[key] = value;
  }
  EXPECT_LE(values["MemAvailable:"], values["MemTotal:"]);
  EXPECT_LE(values["MemFree:"] + values["Cached:"], values["MemTotal:"]);
  EXPECT_GT(values["MemFree:"], 0u);
}

TEST_F(SizeTemplate, IsMadeOncePerSizeAndLeavesNoDraft) {
  auto first = EnsureSizeTemplate(dir_, 2, 1ull << 30);
  auto again = EnsureSizeTemplate(dir_, 2, 1ull << 30);
  auto other = EnsureSizeTemplate(dir_, 4, 1ull << 30);
  ASSERT_TRUE(first && again && other);
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
  int entries = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(dir_)) ++entries;
  EXPECT_EQ(entries, 2);
  EXPECT_FALSE(EnsureSizeTemplate(dir_, 0, 1ull << 30));
  EXPECT_FALSE(EnsureSizeTemplate(dir_, 1, 0));
}

TEST(DevTemplate, HasOnlyHarmlessDevicesAndIsReadOnly) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  auto dev = MakeDevTemplate();
  ASSERT_TRUE(dev) << dev.error().message;
  struct stat st{};
  ASSERT_EQ(::fstatat(dev->get(), "null", &st, 0), 0);
  EXPECT_TRUE(S_ISCHR(st.st_mode));
  EXPECT_EQ(st.st_rdev, ::makedev(1, 3));
  EXPECT_EQ(st.st_mode & 0777, 0666u);
  for (const char* missing : {"console", "kmsg", "mem", "fuse", "kvm", "sda", "net/tun"}) {
    EXPECT_NE(::fstatat(dev->get(), missing, &st, 0), 0) << missing;
  }
  EXPECT_EQ(::mkdirat(dev->get(), "new", 0755), -1);
  EXPECT_EQ(errno, EROFS);
  Fd null(::openat(dev->get(), "null", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(null);
  EXPECT_EQ(::write(null.get(), "x", 1), 1);
}

TEST(ProcLists, NameOnlyWhatExists) {
  auto exists = [](const char* name) { return ::access((std::string("/proc/") + name).c_str(), F_OK) == 0; };
  EXPECT_FALSE(MaskedProcFiles().empty());
  for (const char* name : MaskedProcFiles()) EXPECT_TRUE(exists(name)) << name;
  for (const char* name : MaskedProcDirs()) EXPECT_TRUE(exists(name)) << name;
  for (const char* name : ReadOnlyProcPaths()) EXPECT_TRUE(exists(name)) << name;
  std::vector<std::string> files(MaskedProcFiles().begin(), MaskedProcFiles().end());
  for (const char* name : {"kcore", "kallsyms", "keys", "timer_list", "sysrq-trigger"}) {
    EXPECT_EQ(std::count(files.begin(), files.end(), name), exists(name) ? 1 : 0) << name;
  }
}

}  // namespace
}  // namespace sandbar::os
