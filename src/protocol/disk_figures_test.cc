#include "protocol/disk_figures.h"

#include <gtest/gtest.h>

#include <array>

namespace sandbar::protocol {
namespace {

TEST(DiskFiguresTest, WhatWasWrittenIsRead) {
  FiguresPage page{};
  auto empty = ReadFigures(page);
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->at_ms, 0);
  EXPECT_EQ(empty->figures[0], DiskFigures{});
  const std::array<DiskFigures, 2> figures = {{{100, 60, 50}, {7, 0, 0}}};
  WriteFigures(page, figures, 1234);
  auto reading = ReadFigures(page);
  ASSERT_TRUE(reading);
  EXPECT_NE(reading->sequence, empty->sequence);
  EXPECT_EQ(reading->at_ms, 1234);
  EXPECT_EQ(reading->figures[0], figures[0]);
  EXPECT_EQ(reading->figures[1], figures[1]);
  EXPECT_EQ(reading->figures[2], DiskFigures{});
}

TEST(DiskFiguresTest, APageThatIsBeingWrittenIsNotRead) {
  FiguresPage page{};
  page.sequence = 1;
  EXPECT_FALSE(ReadFigures(page));
}

TEST(DiskFiguresTest, MoreFiguresThanThePageHoldsAreLeftOut) {
  FiguresPage page{};
  const std::array<DiskFigures, kMaxFigures + 3> many{};
  WriteFigures(page, many, 1);
  EXPECT_EQ(page.count, kMaxFigures);
  page.count = 4000;  // no reader looks behind the page
  EXPECT_TRUE(ReadFigures(page));
}

}  // namespace
}  // namespace sandbar::protocol
