#include "api/shares.h"

#include <gtest/gtest.h>

#include <deque>

namespace sandbar::api {
namespace {

// Takes as many places as it gets.
size_t Grab(Shares* shares, std::deque<Shares::Place>* places, const std::string& project, const std::string& sandbox) {
  size_t count = 0;
  for (auto place = shares->Take(project, sandbox); place; place = shares->Take(project, sandbox)) {
    places->push_back(*std::move(place));
    ++count;
  }
  return count;
}

TEST(Shares, GreedySandboxesLeavePlacesToOthersOfTheirProject) {
  Shares shares(2048);
  std::deque<Shares::Place> places;
  const size_t first = Grab(&shares, &places, "p", "one");
  const size_t second = Grab(&shares, &places, "p", "two");
  const size_t third = Grab(&shares, &places, "p", "three");
  EXPECT_GE(first, 512U);
  EXPECT_GE(second, 128U);
  EXPECT_GE(third, 32U);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(shares.Take("p", "another " + std::to_string(i))) << i;
}

TEST(Shares, AGreedyProjectLeavesPlacesToOthersHoweverManySandboxesItHas) {
  Shares shares(2048);
  std::deque<Shares::Place> places;
  for (int i = 0; i < 1000; ++i) Grab(&shares, &places, "greedy", std::to_string(i));
  EXPECT_LE(places.size(), 1024U);
  EXPECT_GE(Grab(&shares, &places, "modest", "one"), 256U);
  EXPECT_TRUE(shares.Take("third", "one"));
}

TEST(Shares, WhatIsGivenBackCanBeTakenAgain) {
  Shares shares(4, 2);
  std::deque<Shares::Place> places;
  EXPECT_EQ(Grab(&shares, &places, "p", ""), 3U);
  EXPECT_EQ(shares.Take("p", "").error().code, Code::kTooMany);
  EXPECT_TRUE(shares.Take("q", ""));
  places.pop_back();
  EXPECT_TRUE(shares.Take("p", ""));
  places.clear();
  EXPECT_EQ(shares.open(), 0U);
}

}  // namespace
}  // namespace sandbar::api
