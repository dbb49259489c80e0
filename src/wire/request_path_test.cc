#include "wire/request_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

TEST(NormalizePath, Table) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"/", "/"},
      {"/a", "/a"},
      {"/a/", "/a/"},
      {"/a/./b", "/a/b"},
      {"/a/../b", "/b"},
      {"/..", "/"},
      {"/../../a", "/a"},
      {"/a/..", "/"},
      {"/a/b/..", "/a/"},
      {"/a/.", "/a/"},
      {"/%2e%2e/a", "/a"},
      {"/a/%2E%2e/b", "/b"},
      {"/%61%2d%7E", "/a-~"},
      {"/a%2fb", "/a%2Fb"},
      {"/a%20b%c3%a4", "/a%20b%C3%A4"},
      {"/%252e%252e/a", "/%252e%252e/a"},
      {"/a//b", "/a//b"},
      {"//a", "//a"},
      {"//", "//"},
      {"/...", "/..."},
      {"/a;b=..;c", "/a;b=..;c"},
  };
  for (const auto& [given, want] : table) {
    auto got = NormalizePath(given);
    ASSERT_TRUE(got) << given;
    EXPECT_EQ(*got, want) << given;
    EXPECT_EQ(*NormalizePath(*got), want) << "once is enough: " << given;
  }
  for (const char* bad : {"/%", "/%2", "/%zz", "/a%00", "/%u0041"}) EXPECT_FALSE(NormalizePath(bad)) << bad;
}

TEST(ReadPath, AnOrdinaryPathHasOneReading) {
  for (const char* path : {"/", "/a", "/a/", "/v1/items/7", "/a.b/c-d_e~f", "/..."})
    EXPECT_THAT(ReadPath(path).value(), ElementsAre(path)) << path;
}

TEST(ReadPath, EveryWayToReadIt) {
  EXPECT_THAT(ReadPath("/a%2Fb").value(), UnorderedElementsAre("/a%2Fb", "/a/b"));
  EXPECT_THAT(ReadPath("/a//b").value(), UnorderedElementsAre("/a//b", "/a/b"));
  EXPECT_THAT(ReadPath("/a;v=1/b").value(), UnorderedElementsAre("/a;v=1/b", "/a/b"));
  EXPECT_THAT(ReadPath("/a%252Fb").value(), UnorderedElementsAre("/a%2Fb", "/a%252Fb", "/a/b"));
  EXPECT_THAT(ReadPath("/a%3Fb").value(), UnorderedElementsAre("/a?b", "/a%3Fb", "/a"));
  EXPECT_THAT(ReadPath("/50%25").value(), UnorderedElementsAre("/50%", "/50%25"));
}

TEST(ReadPath, WhatNobodyCanForeseeIsForbidden) {
  for (const char* path : {"/a/..;/b", "/a/.;/b", "/a/%252e%252e/b", "/a/..%2Fb", "/a/..%3Bx", "/a%5Cb", "/a\\b",
                           "/a%255Cb", "/a%0A", "/a%2500", "/%C0%AE", "/%E0%80%AE", "/%F0%80%80%AE", "/a%2525252525"}) {
    auto read = ReadPath(path);
    ASSERT_FALSE(read) << path;
    EXPECT_EQ(read.error().code, Code::kForbidden) << path;
  }
  EXPECT_EQ(ReadPath("/%zz").error().code, Code::kBadRequest);
}

}  // namespace
}  // namespace sandbar::wire
