#include "wire/output_frames.h"

#include <gtest/gtest.h>

#include <vector>

namespace sandbar::wire {
namespace {

using namespace std::string_literals;

std::vector<OutputFrames::Frame> All(OutputFrames* frames) {
  std::vector<OutputFrames::Frame> out;
  while (auto frame = frames->Next()) out.push_back(*std::move(frame));
  return out;
}

TEST(OutputFrames, BytesOfAFrame) {
  EXPECT_EQ(OutputFrame(OutputKind::kStdout, "hi"), "\x01\0\0\0\x02hi"s);
  EXPECT_EQ(OutputFrame(OutputKind::kKeepAlive, ""), "\0\0\0\0\0"s);
  EXPECT_EQ(GapFrame(0x0102), "\x03\0\0\0\x08\0\0\0\0\0\0\x01\x02"s);
  EXPECT_EQ(OutputFrame(OutputKind::kCommand, "{}"), "\x04\0\0\0\x02{}"s);
}

TEST(OutputFrames, TheSameFramesHoweverTheBytesAreCut) {
  const std::string bytes = OutputFrame(OutputKind::kCommand, "{}") + OutputFrame(OutputKind::kStdout, "a\xff\0b"s) +
                            OutputFrame(OutputKind::kKeepAlive, "") + GapFrame(1ull << 40) +
                            OutputFrame(OutputKind::kStderr, "") + OutputFrame(OutputKind::kError, "{}");
  for (size_t step = 1; step <= bytes.size(); ++step) {
    OutputFrames frames;
    for (size_t at = 0; at < bytes.size(); at += step)
      ASSERT_TRUE(frames.Feed(std::string_view(bytes).substr(at, step)));
    const auto all = All(&frames);
    ASSERT_EQ(all.size(), 6u);
    EXPECT_EQ(all[0].kind, OutputKind::kCommand);
    EXPECT_EQ(all[1].payload, "a\xff\0b"s);
    EXPECT_EQ(all[2].kind, OutputKind::kKeepAlive);
    EXPECT_EQ(all[3].missing, 1ull << 40);
    EXPECT_EQ(all[4].kind, OutputKind::kStderr);
    EXPECT_EQ(all[5].kind, OutputKind::kError);
    EXPECT_FALSE(frames.incomplete());
  }
}

TEST(OutputFrames, LongOutputBecomesSeveralFrames) {
  const std::string big(kMaxOutputPayload * 2 + 1, 'x');
  OutputFrames frames;
  ASSERT_TRUE(frames.Feed(OutputFrame(OutputKind::kStdout, big)));
  std::string joined;
  const auto all = All(&frames);
  EXPECT_EQ(all.size(), 3u);
  for (const auto& frame : all) joined += frame.payload;
  EXPECT_TRUE(joined == big);
}

TEST(OutputFrames, KnowsThatItStoppedInsideAFrame) {
  OutputFrames frames;
  EXPECT_FALSE(frames.incomplete());
  ASSERT_TRUE(frames.Feed("\x01\0\0"s));
  EXPECT_TRUE(frames.incomplete());
  ASSERT_TRUE(frames.Feed("\0\x02h"s));
  EXPECT_TRUE(frames.incomplete());
  EXPECT_FALSE(frames.Next());
  ASSERT_TRUE(frames.Feed("i"));
  EXPECT_FALSE(frames.incomplete());
}

TEST(OutputFrames, RefusesWhatNoEncoderWrites) {
  for (const std::string& bytes :
       {"\x06\0\0\0\0"s, "\x01\0\x10\0\x01"s, "\x01\xff\xff\xff\xff"s, "\x03\0\0\0\x07"s, "\0\0\0\0\x01"s}) {
    OutputFrames frames;
    auto fed = frames.Feed(bytes);
    ASSERT_FALSE(fed);
    EXPECT_EQ(fed.error().code, Code::kProtocol);
    EXPECT_FALSE(frames.Feed(OutputFrame(OutputKind::kStdout, "x")));
    EXPECT_FALSE(frames.Next());
  }
}

}  // namespace
}  // namespace sandbar::wire
