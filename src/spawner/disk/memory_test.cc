// Memory at rest, and what QEMU says: both are read as if somebody had tampered with them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "os/openat.h"
#include "os/process.h"
#include "spawner/disk/memory_file.h"
#include "spawner/machines/qmp.h"

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
  ASSERT_TRUE(os::WriteAll(file.get(), EncodeMemoryHeader(header) + bytes));
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

TEST(QmpField, FindsKeysOfTheOutermostObjectOnly) {
  const std::string line = R"({"return": {"id": "no", "x": [1, {"event": "}"}]}, "id": "s1", "n": 5})";
  EXPECT_EQ(QmpField(line, "id"), "\"s1\"");
  EXPECT_EQ(QmpField(line, "n"), "5");
  EXPECT_EQ(QmpField(line, "event"), "");
  EXPECT_EQ(QmpField(QmpField(line, "return"), "id"), "\"no\"");
  EXPECT_EQ(QmpField(R"({"a": "\"id\": \"s1\"", "id": "s2"})", "id"), "\"s2\"");
  for (const char* broken : {"", "{", "{\"id", "{\"id\"", "{\"id\":", "{\"id\": \"s1", "[\"id\"]", "{\"id\": {}",
                             "nonsense", "{\"id\" 5}", "{,}", "{\"a\": 1 \"id\": 2", "{\"\\"})
    EXPECT_EQ(QmpField(broken, "id"), "") << broken;
}

class QmpTest : public testing::Test {
 protected:
  QmpTest() {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()), 0);
    ours_ = Fd(pair[0]);
    qemu_ = Fd(pair[1]);
  }
  void Say(std::string_view text) { EXPECT_TRUE(os::WriteAll(qemu_.get(), text)); }
  static int64_t Soon() { return os::BootTimeMs() + 200; }

  Fd ours_, qemu_;
};

TEST_F(QmpTest, TakesTheAnswerWithItsOwnNumber) {
  Say("{\"QMP\": {}}\r\n{\"return\": {}}\r\n{\"return\": {}, \"id\": \"s7\"}\r\n{\"event\": \"STOP\"}\r\n");
  Say("{\"id\": \"s1\", \"error\": {\"class\": \"x\", \"desc\": \"not \\u0007now\"}}\r\n{\"return\": {}, \"id\": "
      "\"s2\"}\r\n");
  Qmp qmp(ours_.get(), Soon());
  auto refused = qmp.Ask("stop");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("refused stop"), std::string::npos);
  EXPECT_TRUE(qmp.Ask("cont"));
}

TEST_F(QmpTest, DoesNotWaitForEver) {
  Qmp qmp(ours_.get(), Soon());
  auto silent = qmp.Ask("stop");
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, Code::kTimeout);
}

TEST_F(QmpTest, ALineHasALongestLength) {
  std::thread flood([this] {
    const std::string much(4096, 'x');
    for (int i = 0; i < 100; ++i)
      if (::send(qemu_.get(), much.data(), much.size(), MSG_NOSIGNAL) < 0) ::usleep(1000);
  });
  Qmp qmp(ours_.get(), os::BootTimeMs() + 60'000);
  auto flooded = qmp.Ask("stop");
  flood.join();
  ASSERT_FALSE(flooded);
  EXPECT_EQ(flooded.error().code, Code::kProtocol);
}

TEST_F(QmpTest, NoticesTheEnd) {
  qemu_.Reset();
  Qmp qmp(ours_.get(), Soon());
  EXPECT_FALSE(qmp.Ask("stop"));
}

}  // namespace
}  // namespace sandbar::spawner
