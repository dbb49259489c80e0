#include "api/client_mistakes.h"

#include <gtest/gtest.h>

#include "support/api/api_fixture.h"

namespace sandbar::api {
namespace {

TEST(ClientMistakes, WordsOfAProgramForNothing) {
  EXPECT_TRUE(UnsetValueHint({{"name", "undefined"}}).contains("\"undefined\" as the name"));
  EXPECT_TRUE(UnsetValueHint({{"session", "[object Object]"}}).contains("not set"));
  EXPECT_EQ(UnsetValueHint({{"name", "undefined-behaviour"}, {"session", "sbx_1"}}), "");
}

TEST_F(ApiFixture, ClientsOfE2bGetOneSentence) {
  for (const char* path : {"/sandboxes", "/v2/sandboxes", "/templates"}) {
    Answer got = Ask("POST", path, "{}", "X-API-Key: e2b_0\r\nX-Without: Authorization\r\n");
    EXPECT_EQ(got.status, 422) << path;
    const std::string message(got.Json().at("message").as_string());
    EXPECT_TRUE(message.contains("not that of E2B")) << message;
  }
}

}  // namespace
}  // namespace sandbar::api
