#include "wire/websocket_handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

using testing::HasSubstr;
using Fields = std::vector<HttpField>;

constexpr char kKey[] = "dGhlIHNhbXBsZSBub25jZQ==";  // of the RFC's example
constexpr char kAccept[] = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

Fields Request() {
  return {{"Host", "server.example.com"},
          {"Upgrade", "websocket"},
          {"Connection", "keep-alive, Upgrade"},
          {"Sec-WebSocket-Key", kKey},
          {"Sec-WebSocket-Version", "13"}};
}

Fields With(Fields fields, const std::string& name, const std::string& value) {
  std::erase_if(fields, [&name](const HttpField& f) { return f.name == name; });
  if (!value.empty()) fields.push_back({name, value});
  return fields;
}

int StatusOf(const Fields& fields, std::string_view method = "GET") {
  auto checked = CheckWebSocketRequest(method, fields);
  return checked ? 101 : checked.error().status;
}

TEST(WebSocketHandshake, AcceptsTheExampleOfTheRfc) {
  EXPECT_EQ(WebSocketAccept(kKey), kAccept);
  auto accept = CheckWebSocketRequest("GET", Request());
  ASSERT_TRUE(accept);
  EXPECT_EQ(*accept, kAccept);
}

TEST(WebSocketHandshake, DeclinesExtensionsAndSubprotocols) {
  Fields offered = With(Request(), "Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits");
  offered = With(offered, "Sec-WebSocket-Protocol", "chat");
  auto accept = CheckWebSocketRequest("GET", offered);
  ASSERT_TRUE(accept);
  for (const HttpField& f : WebSocketAnswerFields(*accept))
    EXPECT_TRUE(f.name == "upgrade" || f.name == "sec-websocket-accept") << f.name;
}

TEST(WebSocketHandshake, RefusesOtherRequests) {
  EXPECT_EQ(StatusOf(With(Request(), "Upgrade", "")), 426);
  EXPECT_EQ(StatusOf(With(Request(), "Upgrade", "h2c")), 426);
  EXPECT_EQ(StatusOf(With(Request(), "Connection", "close")), 426);
  EXPECT_EQ(StatusOf(With(Request(), "Sec-WebSocket-Version", "")), 426);
  EXPECT_EQ(StatusOf(With(Request(), "Sec-WebSocket-Version", "8")), 426);
  EXPECT_EQ(StatusOf(Request(), "POST"), 400);
  EXPECT_EQ(StatusOf(With(Request(), "Sec-WebSocket-Key", "")), 400);
  EXPECT_EQ(StatusOf(With(Request(), "Sec-WebSocket-Key", "c2hvcnQ=")), 400);
  EXPECT_EQ(StatusOf(With(Request(), "Sec-WebSocket-Key", "not base64 but 24 chars!")), 400);
  for (const char* name : {"Sec-WebSocket-Key", "Sec-WebSocket-Version"}) {
    Fields twice = Request();
    twice.push_back({name, std::string(FindField(twice, name))});
    EXPECT_EQ(StatusOf(twice), 400) << name;
  }
}

TEST(WebSocketHandshake, SaysWhichVersionItSpeaks) {
  auto old = CheckWebSocketRequest("GET", With(Request(), "Sec-WebSocket-Version", "8"));
  ASSERT_FALSE(old);
  EXPECT_EQ(FindField(old.error().fields, "sec-websocket-version"), "13");
  EXPECT_EQ(FindField(old.error().fields, "upgrade"), "websocket");
}

TEST(WebSocketHandshake, ClientChecksTheAnswer) {
  const Fields good = {{"Upgrade", "WebSocket"}, {"Connection", "Upgrade"}, {"Sec-WebSocket-Accept", kAccept}};
  EXPECT_TRUE(CheckWebSocketAnswer(good, kKey));
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"Upgrade", ""},
                                                        {"Upgrade", "h2c"},
                                                        {"Connection", ""},
                                                        {"Sec-WebSocket-Accept", ""},
                                                        {"Sec-WebSocket-Accept", "S3pPLMBiTxaQ9kYGzzhZRbK+xOo="},
                                                        {"Sec-WebSocket-Extensions", "permessage-deflate"},
                                                        {"Sec-WebSocket-Protocol", "chat"}}) {
    auto checked = CheckWebSocketAnswer(With(good, name, value), kKey);
    ASSERT_FALSE(checked) << name << ": " << value;
    EXPECT_EQ(checked.error().code, Code::kProtocol);
    EXPECT_THAT(checked.error().message, HasSubstr("the server"));
  }
}

}  // namespace
}  // namespace sandbar::wire
