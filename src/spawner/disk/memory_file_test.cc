// The file with a machine's memory: every damage is noticed.
#include "spawner/disk/memory_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/files.h"
#include "os/openat.h"

namespace sandbar::spawner {
namespace {

MemoryHeader Header() {
  return {{"microvm", "version 7.2", "Some CPU", "abc", "def", 2048, 2}, 0, ""};
}

std::string SumOf(std::string_view bytes) {
  Checksum sum;
  sum.Add(bytes);
  return sum.Hex();
}

TEST(Checksum, NoticesEveryFlippedBitAndEveryCut) {
  std::string bytes(1003, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31);
  const std::string right = SumOf(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(SumOf(bytes), right) << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  }
  EXPECT_NE(SumOf(bytes.substr(0, 1002)), right);
  EXPECT_NE(SumOf(bytes + std::string(1, '\0')), right);
  EXPECT_NE(SumOf(""), SumOf(std::string(8, '\0')));
}

TEST(Checksum, DoesNotDependOnThePieces) {
  std::string bytes(777, 'x');
  bytes[400] = 'y';
  for (size_t cut : {0, 1, 7, 8, 9, 399, 776}) {
    Checksum sum;
    sum.Add(std::string_view(bytes).substr(0, cut));
    sum.Add(std::string_view(bytes).substr(cut));
    EXPECT_EQ(sum.Hex(), SumOf(bytes)) << cut;
  }
}

TEST(MemoryHeader, IsReadBackAndEveryDamageIsSeen) {
  MemoryHeader header = Header();
  header.bytes = 12345;
  header.sum = SumOf("x");
  std::string page = EncodeMemoryHeader(header);
  ASSERT_EQ(page.size(), kMemoryHeader);
  auto back = DecodeMemoryHeader(page);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->bytes, 12345U);
  EXPECT_EQ(back->needs.cpu, "Some CPU");
  EXPECT_TRUE(CheckNeeds(back->needs, header.needs));
  for (size_t i = 0; i < page.size(); ++i) {
    page[i] = static_cast<char>(page[i] ^ 1);
    EXPECT_FALSE(DecodeMemoryHeader(page)) << i;
    page[i] = static_cast<char>(page[i] ^ 1);
  }
  EXPECT_FALSE(DecodeMemoryHeader(page.substr(0, 100)));
  EXPECT_FALSE(DecodeMemoryHeader(""));
}

TEST(MemoryHeader, SaysWhatDiffers) {
  const MemoryNeeds saved = Header().needs;
  auto refused = [&](auto change) {
    MemoryNeeds here = saved;
    change(here);
    auto r = CheckNeeds(saved, here);
    EXPECT_FALSE(r);
    EXPECT_EQ(r.error().code, Code::kConflict);
    return r.error().message;
  };
  EXPECT_NE(refused([](auto& n) { n.engine = "microvm-emulated"; }).find("microvm-emulated"), std::string::npos);
  EXPECT_NE(refused([](auto& n) { n.qemu = "version 9"; }).find("version 9"), std::string::npos);
  EXPECT_NE(refused([](auto& n) { n.cpu = "Other"; }).find("Other"), std::string::npos);
  EXPECT_NE(refused([](auto& n) { n.kernel = "zzz"; }).find("kernel"), std::string::npos);
  EXPECT_NE(refused([](auto& n) { n.memory_mib = 4096; }).find("4096 MiB"), std::string::npos);
  EXPECT_NE(refused([](auto& n) { n.vcpus = 4; }).find("vcpus"), std::string::npos);
  EXPECT_NE(refused([](auto& n) { n.devices = "zzz"; }).find("devices"), std::string::npos);
}

TEST(MemoryFile, IsCheckedToTheLastByte) {
  Fd file(::memfd_create("memory", MFD_CLOEXEC));
  const std::string bytes(300'001, 'm');
  MemoryHeader header = Header();
  header.bytes = bytes.size();
  header.sum = SumOf(bytes);
  ASSERT_TRUE(WriteAll(file.get(), EncodeMemoryHeader(header) + bytes));
  ASSERT_TRUE(CheckMemory(file.get(), header));
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_CUR), static_cast<off_t>(kMemoryHeader));
  ASSERT_EQ(::pwrite(file.get(), "n", 1, static_cast<off_t>(kMemoryHeader + 123'456)), 1);
  auto damaged = CheckMemory(file.get(), header);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, Code::kConflict);
  ASSERT_EQ(::pwrite(file.get(), "m", 1, static_cast<off_t>(kMemoryHeader + 123'456)), 1);
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(kMemoryHeader + bytes.size() + 1)), 0);
  EXPECT_FALSE(CheckMemory(file.get(), header));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(kMemoryHeader + 5)), 0);
  EXPECT_FALSE(CheckMemory(file.get(), header));
}

}  // namespace
}  // namespace sandbar::spawner
