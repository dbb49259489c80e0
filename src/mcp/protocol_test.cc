#include "mcp/protocol.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace sandbar::mcp {
namespace {

Message Read(std::string_view text, const Headers& headers = {}) {
  return ReadMessage(json::parse(text), headers);
}

int CodeOf(std::string_view text, const Headers& headers = {}) {
  Message message = Read(text, headers);
  return message.error ? message.error->code : 0;
}

constexpr const char* kModernPing =
    R"({"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"run_code","_meta":{"progressToken":7,
        "io.modelcontextprotocol/protocolVersion":"2026-07-28"}}})";

TEST(McpProtocol, TellsRequestsNotificationsAndAnswersApart) {
  Message request = Read(R"({"jsonrpc":"2.0","id":0,"method":"ping"})");
  EXPECT_EQ(request.kind, Kind::kRequest);
  EXPECT_EQ(request.method, "ping");
  EXPECT_EQ(request.id, 0);
  EXPECT_FALSE(request.modern);
  EXPECT_TRUE(request.progress_token.is_null());
  EXPECT_EQ(Read(R"({"jsonrpc":"2.0","method":"notifications/x"})").kind, Kind::kNotification);
  EXPECT_EQ(Read(R"({"jsonrpc":"2.0","id":1,"result":{}})").kind, Kind::kResponse);
  EXPECT_EQ(Read(R"({"jsonrpc":"2.0","id":1,"error":{}})").kind, Kind::kResponse);
}

TEST(McpProtocol, WhatIsNoMessageHasACode) {
  for (const char* text : {"1", "null", "[]", "{}", R"({"jsonrpc":"1.0","id":1,"method":"x"})",
                           R"({"jsonrpc":"2.0","id":null,"method":"x"})", R"({"jsonrpc":"2.0","id":[],"method":"x"})",
                           R"({"jsonrpc":"2.0","id":true,"method":"x"})", R"({"jsonrpc":"2.0","id":1,"method":null})"})
    EXPECT_EQ(CodeOf(text), kInvalidRequest) << text;
  EXPECT_EQ(CodeOf(R"({"jsonrpc":"2.0","id":1,"method":"x","params":[1]})"), kInvalidParams);
}

TEST(McpProtocol, AnErrorKeepsTheIdWhenThereIsOne) {
  EXPECT_EQ(Read(R"({"jsonrpc":"1.0","id":"q","method":"x"})").id, "q");
  json::object answer = ErrorMessage("q", UnsupportedVersion("2031-01-01"));
  EXPECT_EQ(answer.at("id"), "q");
  EXPECT_EQ(answer.at("error").at("data").at("requested"), "2031-01-01");
  EXPECT_EQ(answer.at("error").at("data").at("supported").as_array().front(), "2026-07-28");
}

TEST(McpProtocol, TheEraIsThatOfTheMessage) {
  Message message = Read(kModernPing);
  EXPECT_FALSE(message.error);
  EXPECT_TRUE(message.modern);
  EXPECT_EQ(message.progress_token, 7);
  EXPECT_EQ(CodeOf(kModernPing, {"2026-07-28", "tools/call", "run_code"}), 0);
  EXPECT_EQ(CodeOf(kModernPing, {"2025-11-25", "", ""}), kHeaderMismatch);
  EXPECT_EQ(CodeOf(kModernPing, {"", "tools/list", ""}), kHeaderMismatch);
  EXPECT_EQ(CodeOf(kModernPing, {"", "", "run_command"}), kHeaderMismatch);
  EXPECT_EQ(CodeOf(R"({"jsonrpc":"2.0","id":1,"method":"x"})", {"2026-07-28", "", ""}), kInvalidParams);
  // Older clients send no such headers; what a proxy adds does not concern them.
  EXPECT_EQ(CodeOf(R"({"jsonrpc":"2.0","id":1,"method":"x"})", {"2025-11-25", "other", "other"}), 0);
  EXPECT_EQ(CodeOf(R"({"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":
                      {"io.modelcontextprotocol/protocolVersion":"1"}}})"),
            kUnsupportedVersion);
}

TEST(McpProtocol, Versions) {
  for (std::string_view version : KnownVersions()) EXPECT_TRUE(IsKnownVersion(version));
  EXPECT_FALSE(IsKnownVersion(""));
  EXPECT_TRUE(AllowsBatch(""));
  EXPECT_TRUE(AllowsBatch("2025-03-26"));
  EXPECT_FALSE(AllowsBatch("2025-06-18"));
  EXPECT_FALSE(AllowsBatch("2026-07-28"));
  EXPECT_EQ(NegotiatedVersion({{"protocolVersion", "2025-06-18"}}), "2025-06-18");
  EXPECT_EQ(NegotiatedVersion({{"protocolVersion", "2026-07-28"}}), "2025-11-25");
  EXPECT_EQ(NegotiatedVersion({{"protocolVersion", 5}}), "2025-11-25");
  EXPECT_EQ(NegotiatedVersion({}), "2025-11-25");
}

TEST(McpProtocol, NewResultsSayWhatTheyAre) {
  json::object result{{"x", 1}};
  StampModern(result, {{"name", "sandbar"}}, 5000);
  EXPECT_EQ(result.at("resultType"), "complete");
  EXPECT_EQ(result.at("ttlMs"), 5000);
  EXPECT_EQ(result.at("_meta").at("io.modelcontextprotocol/serverInfo").at("name"), "sandbar");
  json::object plain;
  StampModern(plain, {}, std::nullopt);
  EXPECT_FALSE(plain.contains("ttlMs"));
}

}  // namespace
}  // namespace sandbar::mcp
