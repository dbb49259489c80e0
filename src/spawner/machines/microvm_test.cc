#include "spawner/machines/microvm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cstdlib>
#include <filesystem>

#include "spawner/disk/vm_disk.h"
#include "spawner/machines/initramfs.h"

namespace sandbar::spawner {
namespace {

using ::testing::HasSubstr;

struct Entry {
  std::string name;
  uint32_t mode = 0, major = 0, minor = 0;
  std::string bytes;
};

// As a kernel reads it: "070701", thirteen numbers of eight hex digits, the name, the contents, both padded to four.
std::vector<Entry> Unpack(const std::string& archive) {
  std::vector<Entry> out;
  size_t at = 0;
  auto number = [&](size_t i) {
    return static_cast<uint32_t>(std::stoul(archive.substr(at + 6 + i * 8, 8), nullptr, 16));
  };
  for (;;) {
    EXPECT_EQ(archive.substr(at, 6), "070701");
    Entry e;
    e.mode = number(1);
    size_t size = number(6), name = number(11);
    e.major = number(9);
    e.minor = number(10);
    e.name = archive.substr(at + 110, name - 1);
    size_t data = (at + 110 + name + 3) / 4 * 4;
    e.bytes = archive.substr(data, size);
    at = (data + size + 3) / 4 * 4;
    if (e.name == "TRAILER!!!") break;
    out.push_back(std::move(e));
  }
  EXPECT_EQ(at, archive.size());
  return out;
}

TEST(Initramfs, HoldsTheAgentAndTheModulesInTheirOrder) {
  auto entries = Unpack(MakeInitramfs("agent!", {{"b.ko", "second needs first"}, {"a.ko", "x"}}));
  auto find = [&](const std::string& name) {
    for (const Entry& e : entries)
      if (e.name == name) return e;
    ADD_FAILURE() << name << " is missing";
    return Entry{};
  };
  EXPECT_EQ(find("init").bytes, "agent!");
  EXPECT_EQ(find("init").mode, S_IFREG | 0755U);
  EXPECT_EQ(find("modules.list").bytes, "/modules/b.ko\n/modules/a.ko\n");
  EXPECT_EQ(find("modules/b.ko").bytes, "second needs first");
  EXPECT_EQ(find("root").mode, S_IFDIR | 0755U);
  EXPECT_EQ(find("dev/console").mode, S_IFCHR | 0600U);
  EXPECT_EQ(find("dev/console").major, 5u);
  for (const Entry& e : Unpack(MakeInitramfs("x", {}))) EXPECT_NE(e.name, "modules.list");
  entries = Unpack(MakeInitramfs("x", {{"a.ko", "a"}}, {{"c.ko", "c"}}));
  EXPECT_EQ(find("modules.list").bytes, "/modules/a.ko\n");
  EXPECT_EQ(find("containers.list").bytes, "/modules/c.ko\n");
}

TEST(VmDisk, OnlyTheHostCanSayThatASnapshotIsADevice) {
  char name[] = "/tmp/sandbar-format-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  EXPECT_FALSE(IsBlockFormat(name));
  EXPECT_TRUE(CheckFormat("snap_1", name, false));
  auto refused = CheckFormat("snap_1", name, true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kConflict);
  EXPECT_THAT(refused.error().message, HasSubstr("snap_1 has the format dir, and block"));
  // What a guest of another kind could leave behind does not count.
  ASSERT_EQ(::setxattr(name, "user.sandbar.format", "block", 5, 0), 0);
  std::filesystem::create_directory(std::string(name) + "/disk.img");
  EXPECT_FALSE(IsBlockFormat(name));
  ASSERT_EQ(::setxattr(name, "trusted.sandbar.format", "block", 5, 0), 0) << "root needed";
  EXPECT_TRUE(IsBlockFormat(name));
  EXPECT_THAT(CheckFormat("snap_1", name, false).error().message, HasSubstr("snap_1 has the format block, and dir"));
  std::filesystem::remove_all(name);
}

TEST(Qemu, HasNoMonitorNoDefaultsAndATimeOfItsOwn) {
  Microvm vm;
  vm.tsc_khz = 2000000;
  auto has = [](const std::vector<std::string>& words, const std::string& a, const std::string& b) {
    for (size_t i = 0; i + 1 < words.size(); ++i)
      if (words[i] == a && words[i + 1].find(b) != std::string::npos) return true;
    return false;
  };
  auto emulated = QemuBase(vm, false, "");
  EXPECT_TRUE(has(emulated, "-monitor", "none"));
  EXPECT_TRUE(has(emulated, "-accel", "tcg"));
  EXPECT_TRUE(has(emulated, "-append", "tsc_early_khz=2000000 lpj=8000000"));
  EXPECT_THAT(emulated, ::testing::Contains("-nodefaults"));
  auto real = QemuBase(vm, true, "probe");
  EXPECT_TRUE(has(real, "-accel", "kvm"));
  EXPECT_TRUE(has(real, "-append", " -- probe"));
  EXPECT_FALSE(has(real, "-append", "tsc"));
}

TEST(Qemu, AMachineFromATemplateHasTheSameDevices) {
  Microvm vm;
  auto devices = [](const std::vector<std::string>& words) {
    std::vector<std::string> out;
    for (size_t i = 0; i + 1 < words.size(); ++i)
      if (words[i] == "-device") out.push_back(words[i + 1].substr(0, words[i + 1].find(",netdev")));
    return out;
  };
  auto kept = QemuMachine(vm, {512, 2}, QemuMemory::kShared, false);
  auto copy = QemuMachine(vm, {512, 2}, QemuMemory::kCopy, true);
  EXPECT_EQ(devices(kept), devices(copy));
  EXPECT_EQ(devices(copy).size(), 7u) << "five of eight slots, and two ports";
  EXPECT_THAT(copy, ::testing::Contains(HasSubstr("share=off")));
  EXPECT_THAT(kept, ::testing::Contains(HasSubstr("share=on")));
  EXPECT_THAT(RestoreCommands(9), HasSubstr("fd:9"));
}

class VmTemplatesTest : public testing::Test {
 protected:
  VmTemplatesTest() { t_.most_mib = 100'000; }
  void Put(VmSize size, int64_t used_at, uint64_t mib = 100) {
    t_.ready[size].used_at = used_at;
    t_.ready[size].mib = mib;
  }
  // As somebody would who asks for one size after the other.
  size_t Fill(size_t drives, uint64_t mib = 100) {
    const size_t before = t_.ready.size();
    for (VmSize size{512, 1, drives}; FreeMemoryFor(t_, size, kNow); ++size.mib) Put(size, kNow, mib);
    return t_.ready.size() - before;
  }
  static constexpr int64_t kNow = 10'000'000, kLongAgo = kNow - 3'600'000;
  VmTemplates t_;
};

TEST_F(VmTemplatesTest, DrivesTakeNothingFromMachinesWithout) {
  EXPECT_EQ(Fill(2), 4u);
  EXPECT_EQ(Fill(0), 8u);
  // One that was not used for long makes room, for its own kind only.
  const VmSize plain{512, 1}, drive{512, 1, 2}, wanted{4096, 1}, with_drive{4096, 1, 1};
  Put(plain, kLongAgo);
  EXPECT_FALSE(FreeMemoryFor(t_, with_drive, kNow));
  EXPECT_TRUE(FreeMemoryFor(t_, wanted, kNow));
  EXPECT_FALSE(t_.ready.contains(plain));
  Put(drive, kLongAgo);
  EXPECT_TRUE(FreeMemoryFor(t_, with_drive, kNow));
  EXPECT_FALSE(t_.ready.contains(drive));
  EXPECT_EQ(t_.ready.size(), 10u);
}

TEST_F(VmTemplatesTest, TheyHoldNoMoreThanAShareOfTheHost) {
  t_.most_mib = 1000;
  EXPECT_EQ(Fill(1, 300), 2u) << "half of it";
  EXPECT_EQ(Fill(0, 300), 4u) << "the last begins where there seems to be room";
  Put({512, 1}, kLongAgo, 300);
  EXPECT_FALSE(FreeMemoryFor(t_, {1 << 20, 1}, kNow)) << "never fits";
  EXPECT_TRUE(t_.ready.contains({512, 1})) << "and nothing goes for it";
  Put({513, 1}, kLongAgo, 300);
  EXPECT_TRUE(FreeMemoryFor(t_, {16384, 1}, kNow));
  EXPECT_EQ(t_.ready.size(), 4u) << "as many as it takes";
}

}  // namespace
}  // namespace sandbar::spawner
