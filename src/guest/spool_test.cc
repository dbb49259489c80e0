#include "guest/spool.h"

#include <gtest/gtest.h>

#include <random>

#include "guest/identity.h"

namespace sandbar::guest {
namespace {

// Everything from the last Ack on, as a daemon would put it together: lost bytes as '?'.
std::string Drain(Spool& s, size_t piece_size = 1000) {
  std::string out;
  Spool::Piece p;
  while (s.Peek(piece_size, p)) {
    EXPECT_EQ(p.offset, s.sent());
    out += p.gap > 0 ? std::string(p.gap, '?') : std::string(p.bytes);
    s.Advance(p.gap > 0 ? p.gap : p.bytes.size());
  }
  return out;
}

TEST(SpoolTest, KeepsOrderAndStreams) {
  Spool s;
  s.Append(1, "ab");
  s.Append(1, "c");
  s.Append(2, "E");
  s.Append(1, "d");
  Spool::Piece p;
  ASSERT_TRUE(s.Peek(100, p));
  EXPECT_EQ(p.bytes, "abc");
  EXPECT_EQ(p.stream, 1);
  s.Advance(3);
  ASSERT_TRUE(s.Peek(100, p));
  EXPECT_EQ(p.stream, 2);
  EXPECT_EQ(p.offset, 3u);
  s.Rewind();
  EXPECT_EQ(Drain(s), "abcEd");
  EXPECT_EQ(s.end(), 5u);
}

TEST(SpoolTest, AckForgetsAndRewindReplaysTheRest) {
  Spool s;
  s.Append(1, "0123456789");
  EXPECT_FALSE(s.Ack(1));  // nothing sent yet
  Drain(s);
  EXPECT_TRUE(s.Ack(4));
  EXPECT_TRUE(s.Ack(2));  // stale
  EXPECT_EQ(s.acked(), 4u);
  s.Rewind();
  EXPECT_EQ(Drain(s, 3), "456789");
  EXPECT_TRUE(s.Ack(10));
  EXPECT_EQ(s.cost(), 0u);
}

TEST(SpoolTest, TrimKeepsBothEnds) {
  Spool s;
  for (int i = 0; i < 1000; ++i) s.Append(1, std::string(1000, static_cast<char>('a' + i % 26)));
  s.Trim(200000);
  EXPECT_LE(s.cost(), 200000u);
  std::string out = Drain(s);
  ASSERT_EQ(out.size(), 1000000u);
  EXPECT_EQ(out.substr(0, 1001), std::string(1000, 'a') + "b");
  EXPECT_EQ(out.substr(999000), std::string(1000, static_cast<char>('a' + 999 % 26)));
  EXPECT_NE(out.find('?'), std::string::npos);
  // Acknowledging through the gap leaves nothing behind.
  EXPECT_TRUE(s.Ack(500000));
  EXPECT_TRUE(s.Ack(1000000));
  EXPECT_EQ(s.cost(), 0u);
}

TEST(SpoolTest, TinyAlternatingWritesCostWhatTheyCost) {
  Spool s;
  for (int i = 0; i < 100000; ++i) {
    s.Append(static_cast<uint8_t>(1 + i % 2), "x");
    s.Trim(100000);
    ASSERT_LE(s.cost(), 100000u);
  }
  EXPECT_EQ(Drain(s).size(), 100000u);
}

// Against a model: a string with a mark for every byte that may be missing.
TEST(SpoolTest, RandomOperationsNeverReorderOrInvent) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Spool s;
    std::string model;
    for (int step = 0; step < 60; ++step) {
      switch (random() % 5) {
        case 0:
        case 1: {
          std::string bytes(random() % 50000, static_cast<char>('a' + random() % 26));
          s.Append(static_cast<uint8_t>(1 + random() % 2), bytes);
          model += bytes;
          break;
        }
        case 2:
          // As on a lost connection: trimmed, then sent again from the last Ack.
          s.Trim(random() % 200000 + 1000);
          s.Rewind();
          break;
        case 3: {
          Spool::Piece p;
          if (s.Peek(random() % 9000 + 1, p)) s.Advance(p.gap > 0 ? p.gap : p.bytes.size());
          break;
        }
        default:
          EXPECT_TRUE(s.Ack(s.acked() + random() % (s.sent() - s.acked() + 1)));
      }
    }
    EXPECT_EQ(s.end(), model.size());
    s.Rewind();
    uint64_t at = s.acked();
    std::string rest = Drain(s);
    ASSERT_EQ(at + rest.size(), model.size());
    for (size_t i = 0; i < rest.size(); ++i) {
      ASSERT_TRUE(rest[i] == '?' || rest[i] == model[at + i]) << i;
    }
  }
}

TEST(GroupsTest, FindsTheUsersGroups) {
  std::string text = "root:x:0:\nadm:x:4:eve,adam\nusers:x:100:adam,eve\nother:x:7:evelyn\nsame:x:4:eve\n";
  EXPECT_EQ(ParseGroups(text, "eve", 50), (std::vector<uint32_t>{50, 4, 100}));
  EXPECT_EQ(ParseGroups(text, "nobody", 50), (std::vector<uint32_t>{50}));
  EXPECT_EQ(ParseGroups(text, "", 0), (std::vector<uint32_t>{0}));
}

TEST(GroupsTest, SurvivesNonsense) {
  EXPECT_EQ(ParseGroups("::::\n:x:-1:eve\na:b:99999999999:eve\nx:y:4294967295:eve\nz:z:1 :eve\nok:x:3:eve", "eve", 1),
            (std::vector<uint32_t>{1, 3}));
  std::string many;
  for (int i = 10; i < 5000; ++i) many += "g:x:" + std::to_string(i) + ":eve\n";
  EXPECT_EQ(ParseGroups(many, "eve", 1).size(), kMaxGroups);
  EXPECT_EQ(ParseGroups(std::string(100000, ':'), "eve", 1).size(), 1u);
}

}  // namespace
}  // namespace sandbar::guest
