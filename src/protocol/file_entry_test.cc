#include "protocol/file_entry.h"

#include <gtest/gtest.h>

#include "protocol/guest_limits.h"

namespace sandbar::protocol {
namespace {

FileEntry Entry(std::string name) {
  return {std::move(name), FileType::kSymlink, 1ULL << 50, 0751, 1, 2, 3, -4, 5'000'000'000, "target"};
}

TEST(FileEntry, ComesBackAsItWas) {
  const FileEntry a = Entry("a"), b = Entry(std::string(255, '\xff'));
  auto both = DecodeEntries(EncodeEntry(a) + EncodeEntry(b));
  ASSERT_TRUE(both);
  EXPECT_EQ(*both, (std::vector<FileEntry>{a, b}));
  EXPECT_TRUE(DecodeEntries("")->empty());
}

TEST(FileEntry, WhatIsBrokenIsRefused) {
  const std::string good = EncodeEntry(Entry("a"));
  for (size_t n = 1; n < good.size(); ++n) EXPECT_FALSE(DecodeEntries(good.substr(0, n))) << n;
  FileEntry mode = Entry("a");
  mode.mode = 010000;
  EXPECT_FALSE(DecodeEntries(EncodeEntry(mode)));
  EXPECT_FALSE(DecodeEntries(EncodeEntry(Entry(""))));
  EXPECT_FALSE(DecodeEntries(EncodeEntry(Entry(std::string(kMaxPath + 1, 'x')))));
  std::string many;
  for (uint32_t i = 0; i <= kMaxListed; ++i) many += good;
  EXPECT_FALSE(DecodeEntries(many));
}

TEST(FileEntry, AFieldOfALaterBuildIsPassedOver) {
  std::string later = EncodeEntry(Entry("a"));
  later[0] = static_cast<char>(later[0] + 3);
  auto entries = DecodeEntries(later + "new");
  ASSERT_TRUE(entries);
  EXPECT_EQ(*entries, std::vector<FileEntry>{Entry("a")});
}

}  // namespace
}  // namespace sandbar::protocol
