#include "protocol/vm_config.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace sandbar::protocol {
namespace {

TEST(VmConfig, ArrivesAsSent) {
  VmConfig sent;
  sent.hostname = "sandbox";
  sent.clock_ns = 1'800'000'000'123'456'789;
  sent.entropy = std::string("\0\x7f random", 9);
  sent.pids = 512;
  sent.key = "k3y";
  sent.restored = true;
  sent.files = {{"etc/hosts", 0644, "127.0.0.1 localhost\n"}, {"etc/ssl/x", 0600, ""}};
  sent.drives = {{"/data", true, 1000, 1001}, {"/ro", false, 0, 0}};
  std::string bytes = EncodeVmConfig(sent);
  EXPECT_EQ(ByteReader(bytes).U32(), bytes.size() - 4);
  auto got = DecodeVmConfig(std::string_view(bytes).substr(4));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->hostname, "sandbox");
  EXPECT_EQ(got->clock_ns, sent.clock_ns);
  EXPECT_EQ(got->entropy, sent.entropy);
  EXPECT_EQ(got->pids, 512u);
  EXPECT_EQ(got->key, "k3y");
  EXPECT_TRUE(got->restored);
  ASSERT_EQ(got->files.size(), 2u);
  EXPECT_EQ(got->files[0].path, "etc/hosts");
  EXPECT_EQ(got->files[0].bytes, sent.files[0].bytes);
  EXPECT_EQ(got->files[1].mode, 0600u);
  ASSERT_EQ(got->drives.size(), 2u);
  EXPECT_EQ(got->drives[0].path, "/data");
  EXPECT_TRUE(got->drives[0].writable);
  EXPECT_EQ(got->drives[0].gid, 1001u);
  EXPECT_FALSE(got->drives[1].writable);
  for (size_t n = 4; n < bytes.size(); ++n) EXPECT_FALSE(DecodeVmConfig(std::string_view(bytes).substr(4, n - 4))) << n;
  bytes += "later";
  EXPECT_TRUE(DecodeVmConfig(std::string_view(bytes).substr(4))) << "fields of a later build";
}

TEST(VmConfig, AKeyHasAnAddressOfItsOwn) {
  EXPECT_EQ(VmMac("a key"), VmMac("a key"));
  EXPECT_NE(VmMac("a key"), VmMac("b key"));
  EXPECT_EQ(VmMac("a key")[0], 0x02) << "for one machine, and chosen locally";
}

}  // namespace
}  // namespace sandbar::protocol
