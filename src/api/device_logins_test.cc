#include "api/device_logins.h"

#include <gtest/gtest.h>

#include <cctype>
#include <string>

namespace sandbar::api {
namespace {

using State = LoginAnswer::State;

TEST(DeviceLogins, AnApprovedOneGetsItsKeyOnce) {
  DeviceLogins logins;
  auto started = logins.Start("box @ vercel/sandbox", "127.0.0.1");
  ASSERT_TRUE(started);
  EXPECT_EQ(logins.Poll(started->device_code).state, State::kWaiting);
  auto request = logins.Find(started->user_code, "key_a");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->client, "box @ vercel/sandbox");
  EXPECT_TRUE(logins.Approve(started->user_code, {"sbk_1", std::nullopt}));
  EXPECT_FALSE(logins.Approve(started->user_code, {"sbk_2", std::nullopt})) << "it is decided";
  const LoginAnswer answer = logins.Poll(started->device_code);
  EXPECT_EQ(answer.state, State::kApproved);
  EXPECT_EQ(answer.grant.secret, "sbk_1");
  EXPECT_EQ(logins.Poll(started->device_code).state, State::kUnknown);
}

TEST(DeviceLogins, ACodeIsReadAsPeopleTypeIt) {
  DeviceLogins logins;
  auto started = logins.Start("x", "127.0.0.1");
  ASSERT_TRUE(started);
  ASSERT_EQ(started->user_code.size(), 9U);
  std::string typed;
  for (char c : started->user_code)
    if (c != '-') typed += static_cast<char>(std::tolower(c));
  EXPECT_TRUE(logins.Find(typed, "key_a"));
  EXPECT_TRUE(logins.Deny(typed));
  EXPECT_EQ(logins.Poll(started->device_code).state, State::kDenied);
}

TEST(DeviceLogins, WhoPollsTooFastIsTold) {
  DeviceLogins logins;
  auto started = logins.Start("x", "127.0.0.1");
  ASSERT_TRUE(started);
  EXPECT_EQ(logins.Poll(started->device_code).state, State::kWaiting);
  EXPECT_EQ(logins.Poll(started->device_code).state, State::kTooFast);
}

TEST(DeviceLogins, AnOldOneIsUnknown) {
  DeviceLogins logins(std::chrono::milliseconds(0));
  auto started = logins.Start("x", "127.0.0.1");
  ASSERT_TRUE(started);
  EXPECT_EQ(logins.Poll(started->device_code).state, State::kUnknown);
  EXPECT_FALSE(logins.Approve(started->user_code, {}));
}

TEST(DeviceLogins, OneAddressCannotHoldAllPlaces) {
  DeviceLogins logins;
  for (size_t i = 0; i < DeviceLogins::kMaxOfAddress; ++i) ASSERT_TRUE(logins.Start("x", "192.0.2.1"));
  auto refused = logins.Start("x", "192.0.2.1");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kTooMany);
  EXPECT_TRUE(logins.Start("x", "192.0.2.2"));
}

TEST(DeviceLogins, AFloodFromManyAddressesDrivesOutItself) {
  DeviceLogins logins;
  auto person = logins.Start("x", "192.0.2.1");
  ASSERT_TRUE(person);
  for (size_t i = 0; i < DeviceLogins::kMax + 100; ++i)
    ASSERT_TRUE(logins.Start("x", "198.51.100." + std::to_string(i / 10)));
  EXPECT_EQ(logins.Poll(person->device_code).state, State::kWaiting);
}

TEST(DeviceLogins, WhoGuessesCodesIsStopped) {
  DeviceLogins logins;
  auto started = logins.Start("x", "127.0.0.1");
  ASSERT_TRUE(started);
  for (size_t i = 0; i < DeviceLogins::kMaxMisses; ++i) {
    auto missed = logins.Find("BBBB-AAAA", "key_a");
    ASSERT_FALSE(missed);
    EXPECT_EQ(missed.error().code, Code::kNotFound);
  }
  auto stopped = logins.Find(started->user_code, "key_a");
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kTooMany);
  EXPECT_TRUE(logins.Find(started->user_code, "key_b")) << "other keys are not its guesses' victims";
}

TEST(DeviceLogins, WhatAProgramSaysOfItselfIsCleaned) {
  DeviceLogins logins;
  auto started = logins.Start("evil\x1b[2J <b>\n" + std::string(100, 'a'), "127.0.0.1");
  ASSERT_TRUE(started);
  auto request = logins.Find(started->user_code, "key_a");
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->client.starts_with("evil 2J b aaa")) << request->client;
  EXPECT_LE(request->client.size(), 56U);
}

}  // namespace
}  // namespace sandbar::api
