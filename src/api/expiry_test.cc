// What a short-lived token opened ends with it, whatever it is; what others opened goes on.
#include "support/api/api_fixture.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr const char* kCmd = "/api/v2/sandboxes/sessions/sbx_1/cmd";
constexpr const char* kFs = "/api/v2/sandboxes/sessions/sbx_1/fs";
constexpr const char* kExpired = "the token that opened this has expired";

class ExpiryTest : public ApiFixture {
 protected:
  // A token that is taken for a few seconds more: long enough to be shown once.
  static std::string Token() {
    const int64_t now = NowMs();
    return "Authorization: Bearer " + MintJwt(kTestKey, {"t", "p", now - kLeewayMs + 5000}, now - 120'000) + "\r\n";
  }
  // Every read of the client below waits for the server: nothing here ends by itself.
  std::string Rest(Client& client) {
    std::string all;
    for (std::string chunk = client.ReadChunk(); !chunk.empty(); chunk = client.ReadChunk()) all += chunk;
    return all;
  }
};

TEST_F(ExpiryTest, AFollowedLogEndsWithAnErrorLineAndAnotherOneGoesOn) {
  Client lasting = Connect();
  lasting.Request("GET", std::string(kCmd) + "/cmd_1/logs");
  EXPECT_EQ(lasting.ReadHead().status, 200);
  Client client = Connect();
  client.Request("GET", std::string(kCmd) + "/cmd_1/logs", "", Token());
  EXPECT_EQ(client.ReadHead().status, 200);
  OnLoop([&] { domain_.Out(1, "A\n"); });
  EXPECT_EQ(client.ReadChunk(), "{\"stream\":\"stdout\",\"data\":\"A\\n\"}\n");
  EXPECT_EQ(lasting.ReadChunk(), "{\"stream\":\"stdout\",\"data\":\"A\\n\"}\n");
  json::object last = json::parse(client.ReadChunk()).as_object();
  EXPECT_EQ(last.at("stream"), "error");
  EXPECT_EQ(last.at("data").at("code"), "unauthorized");
  EXPECT_TRUE(last.at("data").at("message").as_string().starts_with(kExpired));
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_FALSE(client.cut()) << "a proper end";
  OnLoop([&] { domain_.Out(1, "B\n"); });
  EXPECT_EQ(lasting.ReadChunk(), "{\"stream\":\"stdout\",\"data\":\"B\\n\"}\n");
  EXPECT_EQ(OnLoop([&] { return domain_.readers; }), 1) << "nobody reads for the other one any more";
}

TEST_F(ExpiryTest, ARevokedKeyEndsWhatItAndItsTokensOpened) {
  std::shared_ptr<sandbox::KeyLife> life = domain_.AddKey("leaked").life;
  const int64_t now = NowMs();
  const std::string jwt = MintJwt(kTestKey, {"t", "p", now + 600'000, "key_leaked", sandbox::KeyRole::kOperator}, now);
  Client lasting = Connect();
  lasting.Request("GET", std::string(kCmd) + "/cmd_1/logs");
  EXPECT_EQ(lasting.ReadHead().status, 200);
  Client client = Connect();
  client.Request("GET", std::string(kCmd) + "/cmd_1/logs", "", "Authorization: Bearer leaked\r\n");
  EXPECT_EQ(client.ReadHead().status, 200);
  Client other = Connect();
  other.Request("GET", std::string(kCmd) + "/cmd_1/logs", "", "Authorization: Bearer " + jwt + "\r\n");
  EXPECT_EQ(other.ReadHead().status, 200);
  OnLoop([&] { life->Revoke(); });
  for (Client* each : {&client, &other}) {
    json::object last = json::parse(each->ReadChunk()).as_object();
    EXPECT_EQ(last.at("data").at("code"), "unauthorized");
    EXPECT_TRUE(last.at("data").at("message").as_string().starts_with("the key that opened this was revoked"));
    EXPECT_EQ(each->ReadChunk(), "");
    EXPECT_FALSE(each->cut()) << "a proper end";
  }
  EXPECT_EQ(Ask("GET", "/v2/sandboxes", "", "Authorization: Bearer " + jwt + "\r\n").status, 401);
  OnLoop([&] { domain_.Out(1, "B\n"); });
  EXPECT_EQ(lasting.ReadChunk(), "{\"stream\":\"stdout\",\"data\":\"B\\n\"}\n");
}

TEST_F(ExpiryTest, AKeyThatExpiresEndsWhatItOpenedWithoutLeeway) {
  sandbox::Identity& who = domain_.AddKey("short");
  who.ends_at_ms = who.principal.expires_at_ms = NowMs() + 3000;
  const int64_t ends = *who.ends_at_ms;
  Client client = Connect();
  client.Request("GET", std::string(kCmd) + "/cmd_1/logs", "", "Authorization: Bearer short\r\n");
  EXPECT_EQ(client.ReadHead().status, 200);
  json::object last = json::parse(client.ReadChunk()).as_object();
  EXPECT_TRUE(last.at("data").at("message").as_string().starts_with(kExpired));
  EXPECT_GE(NowMs(), ends);
  EXPECT_LT(NowMs(), ends + kLeewayMs);
}

TEST_F(ExpiryTest, FollowedFramesEndWithAnErrorFrame) {
  Client client = Connect();
  client.Request("GET", "/x/v1/sessions/sbx_1/commands/cmd_1/output", "", Token());
  EXPECT_EQ(client.ReadHead().status, 200);
  const std::string frames = Rest(client);
  EXPECT_TRUE(frames.contains(kExpired)) << frames;
  EXPECT_FALSE(client.cut()) << "a proper end";
}

TEST_F(ExpiryTest, AWaitedCommandEndsWithAnErrorLineAndRunsOn) {
  Client client = Connect();
  client.Request("POST", kCmd, R"({"command":"sh","args":[],"env":{},"sudo":false,"wait":true,"logs":true})", Token());
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_TRUE(json::parse(client.ReadChunk()).as_object().contains("command"));
  EXPECT_EQ(json::parse(client.ReadChunk()).at("data").at("code"), "unauthorized");
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_FALSE(client.cut());
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 0) << "no signal was sent";
}

TEST_F(ExpiryTest, CodeEndsWithAnErrorEvent) {
  Client client = Connect();
  client.Request("POST", "/x/v1/sandboxes/demo/code", R"({"code":"1"})", Token());
  EXPECT_EQ(client.ReadHead().status, 200);
  json::object last = json::parse(client.ReadChunk()).as_object();
  EXPECT_EQ(last.at("type"), "error");
  EXPECT_TRUE(last.at("value").as_string().starts_with(kExpired));
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_FALSE(client.cut());
}

// One JSON value has no place for an error behind its head, nor has a file.
TEST_F(ExpiryTest, AnAnswerThatCannotSayWhyIsCut) {
  Client client = Connect();
  client.Request("GET", std::string(kCmd) + "/cmd_1?wait=true", "", Token());
  EXPECT_EQ(client.ReadHead().status, 200);
  Rest(client);
  EXPECT_TRUE(client.cut());
  // More than sockets hold, for a client that does not read.
  OnLoop([&] { domain_.pieces.assign(1024, std::string(128 << 10, 'x')); });
  Client slow = Connect();
  slow.Request("POST", std::string(kFs) + "/read", R"({"path":"a"})", Token());
  EXPECT_EQ(slow.ReadHead().status, 200);
  Until([&] { return domain_.files == 0; });
  EXPECT_LT(Rest(slow).size(), 1024U * (128 << 10));
  EXPECT_TRUE(slow.cut());
}

TEST_F(ExpiryTest, AnUploadIsRefusedAndSoIsABodyThatDoesNotEnd) {
  Client client = Connect();
  auto head = [&](const std::string& path, const std::string& type) {
    return "POST " + path + " HTTP/1.1\r\n" + Host("127.0.0.1") + Token() + "Content-Type: " + type +
           "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
  };
  client.Send(head(std::string(kFs) + "/write", "application/gzip"));
  Client other = Connect();
  other.Send(head(kCmd, "application/json"));
  for (Client* each : {&client, &other}) {
    Answer answer = each->ReadAnswer();
    EXPECT_EQ(answer.status, 401);
    EXPECT_TRUE(answer.Message().starts_with(kExpired)) << answer.body;
  }
  EXPECT_EQ(OnLoop([&] { return domain_.written; }), "hello");
}

TEST_F(ExpiryTest, AnMcpStreamEndsWithAnErrorOfItsRequestAndTheCommandRunsOn) {
  config_.mcp.progress_ms = 500;
  const std::string call =
      R"({"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"x"},)"
      R"("_meta":{"progressToken":"p"}}})";
  const std::string events = "Accept: application/json, text/event-stream\r\n";
  Client client = Connect();
  client.Request("POST", "/mcp/s/demo", call, events + Token());
  EXPECT_EQ(client.ReadHead().status, 200);
  const std::string all = Rest(client);
  EXPECT_FALSE(client.cut());
  const std::string last = all.substr(all.rfind("data: ") + 6);
  json::object answer = json::parse(last).as_object();
  EXPECT_EQ(answer.at("id"), 7);
  EXPECT_TRUE(answer.at("error").at("message").as_string().starts_with(kExpired));
  // The same as one answer.
  Client plain = Connect();
  plain.Request("POST", "/mcp/s/demo", call, "Accept: application/json\r\n" + Token());
  EXPECT_EQ(plain.ReadAnswer().status, 401);
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 0) << "no signal was sent";
}

}  // namespace
}  // namespace sandbar::api
