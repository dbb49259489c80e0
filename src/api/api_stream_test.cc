// Streamed answers: what comes when, what is escaped how, and who goes away first.
#include "support/api/api_fixture.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr const char* kCmd = "/api/v2/sandboxes/sessions/sbx_1/cmd";
constexpr const char* kWaitLogs = R"({"command":"sh","args":["-c","x"],"env":{},"sudo":false,"wait":true,"logs":true})";

json::object Line(const std::string& chunk) {
  EXPECT_TRUE(chunk.ends_with('\n')) << chunk;
  return json::parse(chunk).as_object();
}

TEST_F(ApiFixture, WaitedCommandStreamsAsItHappens) {
  Client client = Connect();
  client.Request("POST", kCmd, kWaitLogs);
  Answer head = client.ReadHead();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Get("content-type"), "application/x-ndjson");
  EXPECT_EQ(head.Get("cache-control"), "no-store");
  // Each step is read before the next is made: nothing is held back.
  json::object first = Line(client.ReadChunk());
  EXPECT_EQ(first.at("command").at("id"), "cmd_1");
  EXPECT_TRUE(first.at("command").at("exitCode").is_null());
  OnLoop([&] { domain_.Out(1, "A\n"); });
  EXPECT_EQ(client.ReadChunk(), "{\"stream\":\"stdout\",\"data\":\"A\\n\"}\n");
  OnLoop([&] { domain_.Out(2, "B"); });
  EXPECT_EQ(client.ReadChunk(), "{\"stream\":\"stderr\",\"data\":\"B\"}\n");
  OnLoop([&] { domain_.EndLog(); });
  OnLoop([&] { domain_.Exit(3); });
  json::object last = Line(client.ReadChunk());
  EXPECT_EQ(last.at("command").at("exitCode"), 3);
  EXPECT_EQ(last.at("command").at("durationMs"), 5);
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_FALSE(client.cut());
  // The connection is kept.
  client.Request("GET", "/health");
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

TEST_F(ApiFixture, CodeStreamsItsEventsAndAGoneClientDropsThem) {
  Client client = Connect();
  client.Request("POST", "/x/v1/sandboxes/demo/code",
                 R"({"language":"typescript","code":"1","context":"c","timeoutMs":5,"env":{"A":"b"},"cwd":"/x"})");
  EXPECT_EQ(client.ReadHead().Get("content-type"), "application/x-ndjson");
  OnLoop([&] { domain_.Out(1, "{\"type\":\"started\"}\n"); });
  EXPECT_EQ(client.ReadChunk(), "{\"type\":\"started\"}\n");
  OnLoop([&] {
    EXPECT_EQ(domain_.asked, "demo");
    EXPECT_EQ(domain_.code_spec->language, sandbox::CodeLanguage::kTypescript);
    EXPECT_EQ(domain_.code_spec->code, "1");
    EXPECT_EQ(domain_.code_spec->context, "c");
    EXPECT_EQ(domain_.code_spec->timeout_ms, 5);
    EXPECT_EQ(domain_.code_spec->env.at("A"), "b");
    EXPECT_EQ(domain_.code_spec->cwd, "/x");
    EXPECT_EQ(domain_.readers, 1);
    domain_.EndLog();
  });
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_FALSE(client.cut());
  {
    Client leaving = Connect();
    leaving.Request("POST", "/x/v1/sandboxes/demo/code", R"({"code":"1"})");
    leaving.ReadHead();
  }
  while (OnLoop([&] { return domain_.readers; }) > 0) std::this_thread::yield();
}

TEST_F(ApiFixture, ContextsAndWrongCode) {
  json::object made = Ask("POST", "/x/v1/sandboxes/demo/contexts", R"({"language":"bash"})").Json();
  EXPECT_EQ(made.at("context").at("id"), "ctx_1");
  EXPECT_EQ(made.at("context").at("language"), "bash");
  json::object list = Ask("GET", "/x/v1/sandboxes/demo/contexts").Json();
  EXPECT_EQ(list.at("contexts").at(0).at("executionCount"), 3);
  EXPECT_EQ(list.at("contexts").at(0).at("state"), "idle");
  auto changed = [&](const char* method, const std::string& path) {
    EXPECT_EQ(Ask(method, "/x/v1/sandboxes/demo/contexts/ctx_9" + path).status, 200);
    EXPECT_EQ(OnLoop([&] { return domain_.asked; }), "ctx_9");
    return static_cast<sandbox::ContextChange>(OnLoop([&] { return domain_.number; }));
  };
  EXPECT_EQ(changed("POST", "/interrupt"), sandbox::ContextChange::kInterrupt);
  EXPECT_EQ(changed("POST", "/restart"), sandbox::ContextChange::kRestart);
  EXPECT_EQ(changed("DELETE", ""), sandbox::ContextChange::kRemove);
  for (const char* wrong : {R"({})", R"({"code":1})", R"({"code":"1","language":"perl"})", R"({"code":"1","cdoe":"2"})",
                            R"({"code":"1","env":["A"]})", R"({"code":"a\u0000b"})", "[]", "{"}) {
    EXPECT_EQ(Ask("POST", "/x/v1/sandboxes/demo/code", wrong).status, 400) << wrong;
  }
}

TEST_F(ApiFixture, SplitCharactersArriveWhole) {
  Client client = Connect();
  client.Request("POST", kCmd, kWaitLogs);
  client.ReadHead();
  client.ReadChunk();
  OnLoop([&] {
    domain_.Out(1, "caf\xc3");       // the first half of é
    domain_.Out(2, "\xe2\x82");      // two thirds of € on the other stream
    domain_.Out(1, "\xa9\n");        // the second half
    domain_.Out(2, "\xac\xff");      // the last third, then a byte that is no character
    domain_.Out(1, "\xf0\x9f\x98");  // never completed
    domain_.EndLog();
    domain_.Exit(0);
  });
  std::string all;
  for (std::string chunk = client.ReadChunk(); !chunk.empty(); chunk = client.ReadChunk()) all += chunk;
  EXPECT_TRUE(
      all.starts_with("{\"stream\":\"stdout\",\"data\":\"caf\"}\n"
                      "{\"stream\":\"stdout\",\"data\":\"\\u00e9\\n\"}\n"
                      "{\"stream\":\"stderr\",\"data\":\"\\u20ac\\ufffd\",\"replaced\":true}\n"
                      "{\"stream\":\"stdout\",\"data\":\"\\ufffd\",\"replaced\":true}\n"))
      << all;
  for (char c : all) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7F));
}

// A U+FFFD that the program wrote itself is its own.
TEST_F(ApiFixture, OnlyReplacedBytesAreSaidToBe) {
  Client client = Connect();
  client.Request("GET", std::string(kCmd) + "/cmd_1/logs");
  client.ReadHead();
  OnLoop([&] {
    domain_.Out(1, "a\xef\xbf");
    domain_.Out(1, "\xbd");
    domain_.Out(1, "b\x80");
    domain_.EndLog();
  });
  std::string all;
  for (std::string chunk = client.ReadChunk(); !chunk.empty(); chunk = client.ReadChunk()) all += chunk;
  EXPECT_EQ(all,
            "{\"stream\":\"stdout\",\"data\":\"a\"}\n"
            "{\"stream\":\"stdout\",\"data\":\"\\ufffd\"}\n"
            "{\"stream\":\"stdout\",\"data\":\"b\\ufffd\",\"replaced\":true}\n");
}

TEST_F(ApiFixture, GapIsSaid) {
  Client client = Connect();
  client.Request("GET", std::string(kCmd) + "/cmd_1/logs");
  EXPECT_EQ(client.ReadHead().Get("content-type"), "application/x-ndjson");
  OnLoop([&] {
    domain_.Out(1, "head\xc3");
    domain_.Say(sandbox::LogChunk{1, "tail", 1234});
    domain_.EndLog();
  });
  std::string all;
  for (std::string chunk = client.ReadChunk(); !chunk.empty(); chunk = client.ReadChunk()) all += chunk;
  EXPECT_EQ(all,
            "{\"stream\":\"stdout\",\"data\":\"head\"}\n"
            "{\"stream\":\"stdout\",\"data\":\"\\ufffd\",\"replaced\":true}\n"
            "{\"stream\":\"stderr\",\"data\":\"[sandbar: 1234 bytes of output are missing here]\\n\"}\n"
            "{\"stream\":\"stdout\",\"data\":\"tail\"}\n");
}

TEST_F(ApiFixture, LogsCanBeReadTwiceAtOnce) {
  Client one = Connect();
  Client two = Connect();
  for (Client* client : {&one, &two}) {
    client->Request("GET", std::string(kCmd) + "/cmd_1/logs");
    EXPECT_EQ(client->ReadHead().status, 200);
  }
  OnLoop([&] { domain_.Out(1, "x"); });
  for (Client* client : {&one, &two}) EXPECT_EQ(client->ReadChunk(), "{\"stream\":\"stdout\",\"data\":\"x\"}\n");
  OnLoop([&] { domain_.EndLog(); });
  for (Client* client : {&one, &two}) EXPECT_EQ(client->ReadChunk(), "");
}

TEST_F(ApiFixture, ErrorInTheStreamIsALine) {
  Client client = Connect();
  client.Request("POST", kCmd, kWaitLogs);
  client.ReadHead();
  client.ReadChunk();
  OnLoop([&] { domain_.Say(Error{Code::kStopped, "the machine is gone"}); });
  EXPECT_EQ(
      client.ReadChunk(),
      "{\"stream\":\"error\",\"data\":{\"code\":\"sandbox_stream_closed\",\"message\":\"the machine is gone\"}}\n");
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_FALSE(client.cut());
}

TEST_F(ApiFixture, SilenceIsFilledWithEmptyLines) {
  config_.stream_keep_alive = std::chrono::milliseconds(20);
  Client client = Connect();
  client.Request("POST", kCmd, R"({"command":"x","wait":true})");
  client.ReadHead();
  EXPECT_EQ(Line(client.ReadChunk()).at("command").at("id"), "cmd_1");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.ReadChunk(), "\n");
  OnLoop([&] { domain_.Exit(0); });
  std::string chunk = client.ReadChunk();
  while (chunk == "\n") chunk = client.ReadChunk();
  EXPECT_EQ(Line(chunk).at("command").at("exitCode"), 0);
  EXPECT_EQ(client.ReadChunk(), "");
}

TEST_F(ApiFixture, WithoutLogsThereAreTwoLines) {
  for (const char* path : {kCmd, "/v1/sandboxes/sbx_1/cmd"}) {
    Client client = Connect();
    bool v1 = std::string_view(path).contains("v1");
    // v1 gets no log lines even if it asks.
    client.Request("POST", path, v1 ? kWaitLogs : R"({"command":"x","wait":true})");
    EXPECT_EQ(client.ReadHead().Get("content-type"), "application/x-ndjson");
    json::object first = Line(client.ReadChunk());
    EXPECT_EQ(first.at("command").as_object().count(v1 ? "sandboxId" : "sessionId"), 1U);
    OnLoop([&] { domain_.Exit(0); });
    EXPECT_EQ(Line(client.ReadChunk()).at("command").at("exitCode"), 0);
    EXPECT_EQ(client.ReadChunk(), "");
    EXPECT_EQ(OnLoop([&] { return domain_.readers; }), 0);
  }
}

TEST_F(ApiFixture, DetachedAnswersAtOnce) {
  Answer answer = Ask("POST", kCmd, R"({"command":"x","args":[],"env":{},"sudo":false})");
  EXPECT_EQ(answer.Get("content-type"), "application/json");
  EXPECT_TRUE(answer.Json().at("command").at("exitCode").is_null());
  EXPECT_EQ(Ask("GET", kCmd).Json().at("commands").as_array().size(), 1U);
}

TEST_F(ApiFixture, ClientThatLeavesEndsTheStreamOnly) {
  Client client = Connect();
  client.Request("POST", kCmd, kWaitLogs);
  client.ReadHead();
  client.ReadChunk();
  EXPECT_EQ(OnLoop([&] { return domain_.readers; }), 1);
  client.Close();
  Until([&] { return domain_.readers == 0; });
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 0);  // nobody was killed
  // The same while only the exit is waited for.
  Client waiting = Connect();
  waiting.Request("GET", std::string(kCmd) + "/cmd_1?wait=true");
  waiting.ReadHead();
  Until([&] { return domain_.waits == 1; });
  waiting.Close();
  Until([&] { return domain_.waits == 0; });
}

TEST_F(ApiFixture, GetWaitSendsItsHeadFirst) {
  config_.stream_keep_alive = std::chrono::milliseconds(20);
  Client client = Connect();
  client.Request("GET", std::string(kCmd) + "/cmd_1?wait=true");
  Answer head = client.ReadHead();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Get("content-type"), "application/json");
  EXPECT_EQ(client.ReadChunk(), " ");
  OnLoop([&] { domain_.Exit(7); });
  std::string body;
  for (std::string chunk = client.ReadChunk(); !chunk.empty(); chunk = client.ReadChunk()) body += chunk;
  EXPECT_EQ(json::parse(body).at("command").at("exitCode"), 7);
  // Already ended: a plain answer.
  EXPECT_EQ(Ask("GET", std::string(kCmd) + "/cmd_1?wait=true").Json().at("command").at("exitCode"), 7);
}

TEST_F(ApiFixture, ServerCloseEndsOpenStreams) {
  Client client = Connect();
  client.Request("POST", kCmd, kWaitLogs);
  client.ReadHead();
  client.ReadChunk();
  asio::co_spawn(io_, server_->Close(), asio::use_future).get();
  EXPECT_EQ(OnLoop([&] { return domain_.readers; }), 0);
  client.ReadChunk();
  EXPECT_TRUE(client.cut());
}

}  // namespace
}  // namespace sandbar::api
