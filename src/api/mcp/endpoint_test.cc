// MCP over HTTP with scripted roles: the order of the answers, and what happens when the client goes.
#include <signal.h>

#include <set>

#include "support/api/api_fixture.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr const char* kPath = "/mcp/s/demo";
constexpr const char* kEvents = "Accept: application/json, text/event-stream\r\n";

std::string CallTool(const std::string& name, const std::string& arguments, const std::string& meta = "{}") {
  return R"({"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":")" + name + R"(","arguments":)" +
         arguments + R"(,"_meta":)" + meta + "}}";
}

json::object Event(const std::string& chunk) {
  constexpr std::string_view kBefore = "event: message\ndata: ";
  EXPECT_TRUE(chunk.starts_with(kBefore) && chunk.ends_with("\n\n")) << chunk;
  return json::parse(chunk.substr(kBefore.size())).as_object();
}

std::string TextOf(const json::object& answer) {
  return std::string(answer.at("result").at("content").at(0).at("text").as_string());
}

class McpFixture : public ApiFixture {
 protected:
  McpFixture() { config_.mcp.progress_ms = 10; }
  Answer Call(const std::string& name, const std::string& arguments) {
    return Ask("POST", kPath, CallTool(name, arguments));
  }
};

TEST_F(McpFixture, ProgressComesWhileTheCommandRuns) {
  Client client = Connect();
  client.Request("POST", kPath, CallTool("run_command", R"({"command":"x"})", R"({"progressToken":"p"})"), kEvents);
  Answer head = client.ReadHead();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Get("content-type"), "text/event-stream");
  // Nothing has been said and nothing has ended yet.
  json::object first = Event(client.ReadChunk());
  EXPECT_EQ(first.at("method"), "notifications/progress");
  EXPECT_EQ(first.at("params").at("progressToken"), "p");
  json::object second = Event(client.ReadChunk());
  EXPECT_GT(second.at("params").at("progress").to_number<double>(),
            first.at("params").at("progress").to_number<double>());
  OnLoop([&] {
    domain_.Out(1, "said\n");
    domain_.EndLog();
    domain_.Exit(3);
  });
  json::object last;
  while (!last.contains("result")) last = Event(client.ReadChunk());
  EXPECT_EQ(last.at("id"), 7);
  EXPECT_EQ(TextOf(last).substr(0, TextOf(last).find("\nnetwork:")), "exit code 3 · 5 ms\nstdout:\nsaid");
  EXPECT_FALSE(last.at("result").as_object().contains("isError"));
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_FALSE(client.cut());
  EXPECT_EQ(OnLoop([&] { return domain_.command_spec->args; }), (std::vector<std::string>{"-c", "x"}));
}

TEST_F(McpFixture, AClientThatGoesTakesItsCommandWithIt) {
  Start();
  for (const char* meta : {"{}", R"({"progressToken":1})"}) {
    OnLoop([&] { domain_.number = 0; });
    Client client = Connect();
    client.Request("POST", kPath, CallTool("run_command", R"({"command":"x"})", meta), kEvents);
    Until([&] { return domain_.readers == 1; });
    EXPECT_EQ(OnLoop([&] { return domain_.number; }), 0);
    client.Close();
    Until([&] { return domain_.number == SIGKILL && domain_.readers == 0; });
  }
}

TEST_F(McpFixture, AMessageCancelsTheRequestOfTheSameClientOnly) {
  std::string initialize =
      R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}})";
  const std::string session = Ask("POST", kPath, initialize).Get("mcp-session-id");
  ASSERT_FALSE(session.empty());
  EXPECT_NE(Ask("POST", kPath, initialize).Get("mcp-session-id"), session);
  const std::string mine = "Mcp-Session-Id: " + session + "\r\n";
  auto cancel = [&](const std::string& extra, const std::string& id) {
    std::string body = R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":)" + id + "}}";
    EXPECT_EQ(Ask("POST", kPath, body, extra).status, 202);
  };
  for (const char* meta : {"{}", R"({"progressToken":1})"}) {
    OnLoop([&] { domain_.number = 0; });
    Client client = Connect();
    client.Request("POST", kPath, CallTool("run_command", R"({"command":"x"})", meta), kEvents + mine);
    Until([&] { return domain_.readers == 1; });
    cancel("Mcp-Session-Id: other\r\n", "7");
    cancel("", "7");
    cancel(mine, "8");
    cancel(mine, "\"7\"");
    cancel(mine, "null");
    EXPECT_EQ(OnLoop([&] { return domain_.number; }), 0);
    EXPECT_EQ(OnLoop([&] { return domain_.readers; }), 1);
    cancel(mine, "7");
    Answer answer = client.ReadAnswer();
    EXPECT_FALSE(client.cut());
    EXPECT_EQ(answer.body.find("result"), std::string::npos) << "nobody waits for it";
    EXPECT_EQ(OnLoop([&] { return domain_.number; }), SIGKILL);
    cancel(mine, "7");
  }
}

TEST_F(McpFixture, AServerThatClosesLeavesTheCommandAlone) {
  Client client = Connect();
  client.Request("POST", kPath, CallTool("run_command", R"({"command":"x"})", R"({"progressToken":1})"), kEvents);
  Until([&] { return domain_.readers == 1; });
  asio::co_spawn(io_, server_->Close(), asio::use_future).get();
  EXPECT_EQ(OnLoop([&] { return domain_.readers; }), 0);
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 0) << "it is the sandbox's, which goes on";
}

TEST_F(McpFixture, AClientThatOnlyReadsLeavesTheCommandAlone) {
  Client client = Connect();
  client.Request("POST", kPath, CallTool("read_output", R"({"handle":"cmd_1"})"));
  Until([&] { return domain_.readers == 1; });
  client.Close();
  Until([&] { return domain_.readers == 0; });
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 0);
}

TEST_F(McpFixture, WhatTakesLongReturnsAHandle) {
  config_.mcp.handle_after_ms = 30;
  Answer answer = Call("run_command", R"({"command":"x"})");
  EXPECT_EQ(answer.status, 200);
  std::string text = TextOf(answer.Json());
  EXPECT_TRUE(text.starts_with("running · ")) << text;
  EXPECT_NE(text.find("handle cmd_1\n"), std::string::npos) << text;
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 0);
}

TEST_F(McpFixture, LookingDoesNotWait) {
  Start();
  OnLoop([&] { domain_.Out(2, "so far"); });
  std::string text = TextOf(Call("read_output", R"({"handle":"cmd_1","waitMs":0})").Json());
  EXPECT_NE(text.find("stderr:\nso far\nstill running"), std::string::npos) << text;
}

TEST_F(McpFixture, WhatAToolCannotDoIsToldToTheModelButNotOurInside) {
  domain_.fail = Error{Code::kStopping, "it is stopping"};
  Answer answer = Call("list_files", "{}");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Json().at("result").at("isError"), true);
  EXPECT_EQ(TextOf(answer.Json()), "it is stopping");
  OnLoop([&] { domain_.fail = Error{Code::kIo, "open /secret/path"}; });
  answer = Call("list_files", "{}");
  EXPECT_EQ(answer.Json().at("result").at("isError"), true);
  EXPECT_EQ(TextOf(answer.Json()).find("secret"), std::string::npos);
}

TEST_F(McpFixture, ArgumentsAreCheckedByName) {
  for (const char* arguments : {R"({"command":5})", R"({"comand":"x"})", R"({"command":"x","sandbox":"y"})", "{}"}) {
    Answer answer = Call("run_command", arguments);
    EXPECT_EQ(answer.Json().at("result").at("isError"), true) << arguments;
    EXPECT_NE(TextOf(answer.Json()).find("`"), std::string::npos) << TextOf(answer.Json());
  }
  EXPECT_FALSE(OnLoop([&] { return domain_.command_spec.has_value(); }));
}

TEST_F(McpFixture, FilesGoThroughTheAgent) {
  domain_.pieces = {"one\ntw", "o\nthree\n"};
  EXPECT_EQ(TextOf(Call("read_file", R"({"path":"a/../b.txt","offset":2,"limit":1})").Json()),
            "two\n[… more lines; go on with offset 3]");
  EXPECT_EQ(OnLoop([&] { return domain_.asked; }), "/vercel/b.txt");
  OnLoop([&] { domain_.pieces = {std::string("\x89PNG\r\n\x1a\n", 8), "data"}; });
  json::object image = Call("read_file", R"({"path":"/x.png"})").Json();
  EXPECT_EQ(image.at("result").at("content").at(1).at("type"), "image");
  EXPECT_EQ(image.at("result").at("content").at(1).at("data"), "iVBORw0KGgpkYXRh");
}

TEST_F(McpFixture, TheSandboxOfAConnection) {
  domain_.AddKey("second");
  domain_.fail = Error{Code::kStopping, "asked for"};
  auto asked = [&](const std::string& path, const std::string& arguments, const std::string& extra = "") {
    Ask("POST", path, CallTool("list_files", arguments), extra);
    return OnLoop([&] { return domain_.asked; });
  };
  EXPECT_EQ(asked("/mcp/s/some%20name", "{}"), "some name");
  EXPECT_EQ(asked("/mcp", R"({"sandbox":"mine"})"), "mine");
  const std::string own = asked("/mcp", "{}");
  EXPECT_TRUE(own.starts_with("mcp-")) << own;
  EXPECT_EQ(asked("/mcp", "{}"), own);
  EXPECT_NE(asked("/mcp?projectId=prj_other", "{}"), own);
  EXPECT_NE(asked("/mcp", "{}", "Authorization: Bearer second\r\n"), own);
  const int64_t now = NowMs();
  auto jwt = [now](const std::string& key) {
    const JwtClaims claims{"team_sandbar", "prj_sandbar", now + 600'000, key, sandbox::KeyRole::kOperator};
    return "Authorization: Bearer " + MintJwt(kTestKey, claims, now) + "\r\n";
  };
  EXPECT_EQ(asked("/mcp", "{}", jwt("key_good")), own) << "a token of the same key";
  EXPECT_NE(asked("/mcp", "{}", jwt("key_second")), own);
  json::object listed = Ask("POST", "/mcp", R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})").Json();
  EXPECT_TRUE(listed.at("result").at("tools").at(0).at("inputSchema").at("properties").as_object().contains("sandbox"));
}

TEST_F(McpFixture, EachToolHoldsItsRole) {
  domain_.AddKey("watcher", sandbox::KeyRole::kViewer);
  const std::string viewer = "Authorization: Bearer watcher\r\n";
  auto tools = [&](const std::string& path, const std::string& who) {
    json::object listed = Ask("POST", path, R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})", who).Json();
    std::set<std::string> names;
    for (const json::value& tool : listed.at("result").at("tools").as_array())
      names.emplace(tool.at("name").as_string());
    return names;
  };
  EXPECT_EQ(tools("/mcp", viewer), (std::set<std::string>{"read_file", "read_output"}));
  EXPECT_EQ(tools("/mcp?admin=1", viewer), (std::set<std::string>{"read_file", "read_output", "network"}));
  for (const std::string& name : tools("/mcp?admin=1", "")) {
    if (tools("/mcp?admin=1", viewer).contains(name)) continue;
    Answer refused = Ask("POST", "/mcp?admin=1", CallTool(name, "{}"), viewer);
    EXPECT_EQ(refused.status, 403) << name;
    EXPECT_EQ(refused.Json().at("id"), 7);
    EXPECT_EQ(refused.Json().at("error").at("message"), "the key watcher may only read; this call needs operator");
  }
  Answer batch = Ask("POST", "/mcp", "[" + CallTool("run_command", R"({"command":"x"})") + "]", viewer);
  EXPECT_TRUE(batch.body.contains("may only read")) << batch.body;
  EXPECT_EQ(OnLoop([&] { return domain_.calls; }), 0) << "nothing reached the domain";
  for (const auto& [name, arguments] : {std::pair{"read_output", R"({"handle":"cmd_1","kill":true})"},
                                        std::pair{"network", R"({"policy":"allow-all"})"}}) {
    json::object answer = Ask("POST", "/mcp/s/demo?admin=1", CallTool(name, arguments), viewer).Json();
    EXPECT_EQ(answer.at("result").at("isError"), true);
    EXPECT_EQ(TextOf(answer), "the key watcher may only read; this call needs operator");
  }
  EXPECT_EQ(OnLoop([&] { return domain_.calls; }), 0);
  // Reading makes and starts nothing.
  OnLoop([&] {
    domain_.pieces = {"one\n"};
    domain_.flag = true;
  });
  EXPECT_EQ(TextOf(Ask("POST", kPath, CallTool("read_file", R"({"path":"a"})"), viewer).Json()), "one\n");
  OnLoop([&] {
    EXPECT_FALSE(domain_.flag) << "it asked for a resume";
    EXPECT_FALSE(domain_.create);
    domain_.fail = Error{Code::kNotFound, "sandbox not found"};
  });
  Answer none = Ask("POST", kPath, CallTool("read_file", R"({"path":"a"})"), viewer);
  EXPECT_TRUE(none.body.contains("not found")) << none.body;
  EXPECT_FALSE(OnLoop([&] { return domain_.create.has_value(); }));
}

TEST_F(McpFixture, HowASandboxIsMadeIsInTheQuery) {
  EXPECT_EQ(Ask("POST", "/mcp?network=some", CallTool("list_files", "{}")).status, 400);
  EXPECT_EQ(Ask("POST", "/mcp?network=deny-all&allow=x.example", CallTool("list_files", "{}")).status, 400);
  EXPECT_EQ(Ask("POST", "/mcp?image=x&runtime=node24", CallTool("list_files", "{}")).status, 400);
  EXPECT_EQ(Ask("POST", "/mcp?isolation=4", CallTool("list_files", "{}")).status, 400);
  Answer enough = Ask("POST", "/mcp/s/demo?isolation=1", CallTool("read_file", R"({"path":"a"})"));
  EXPECT_FALSE(enough.body.contains("isolation class")) << enough.body;
  Answer less = Ask("POST", "/mcp/s/demo?isolation=2", CallTool("read_file", R"({"path":"a"})"));
  EXPECT_TRUE(less.body.contains("isolation class 1")) << less.body;
  EXPECT_EQ(Ask("POST", "/mcp?allow=not%20a%20name", CallTool("list_files", "{}")).status, 400);
}

TEST_F(McpFixture, CodeIsFollowedAndItsImagesShown) {
  Start();
  OnLoop([&] {
    domain_.Out(1, R"({"type":"started","context":"python","executionCount":1})"
                   "\n"
                   R"({"type":"stdout","text":"hi\n"})"
                   "\n");
    domain_.Out(1, R"({"type":"display","data":{"image/png":"aGk="}})"
                   "\n"
                   R"({"type":"artifact","path":"/v/a b.csv","size":3,"mime":"text/csv"})"
                   "\n"
                   R"({"type":"end","status":"ok","executionCount":1,"durationMs":1500})"
                   "\n");
    domain_.EndLog();
  });
  json::object answer = Call("run_code", R"j({"code":"plot()"})j").Json();
  EXPECT_EQ(TextOf(answer), "exit code 0 · 1.5 s · python [1]\nstdout:\nhi\nfiles written:\n/v/a b.csv  3");
  const json::array& content = answer.at("result").at("content").as_array();
  ASSERT_EQ(content.size(), 3U);
  EXPECT_EQ(content[1].at("type"), "image");
  EXPECT_EQ(content[2].at("uri"), "sandbar://demo/v/a%20b.csv");
  EXPECT_EQ(OnLoop([&] { return domain_.code_spec->code; }), "plot()");
}

TEST_F(McpFixture, CodeWhoseClientIsGoneIsDropped) {
  Client client = Connect();
  client.Request("POST", kPath, CallTool("run_code", R"({"code":"x"})"));
  Until([&] { return domain_.readers == 1; });
  client.Close();
  Until([&] { return domain_.readers == 0; });
}

TEST_F(McpFixture, CodeThatTakesLongIsReadByItsHandle) {
  config_.mcp.handle_after_ms = 30;
  std::string text = TextOf(Call("run_code", R"({"code":"x"})").Json());
  size_t at = text.find("cell_");
  ASSERT_NE(at, std::string::npos) << text;
  std::string handle = text.substr(at, text.find('\n', at) - at);
  OnLoop([&] {
    domain_.Out(1, "{\"type\":\"stdout\",\"text\":\"late\"}\n{\"type\":\"end\",\"status\":\"ok\",\"durationMs\":1}\n");
    domain_.EndLog();
  });
  Until([&] { return domain_.readers == 0; });
  // Somebody else's sandbox, or the same name in another project, has no such handle.
  std::string read = CallTool("read_output", R"({"handle":")" + handle + R"("})");
  EXPECT_EQ(Ask("POST", "/mcp/s/other", read).Json().at("result").at("isError"), true);
  EXPECT_EQ(Ask("POST", "/mcp/s/demo?projectId=prj_other", read).Json().at("result").at("isError"), true);
  EXPECT_NE(TextOf(Ask("POST", kPath, read).Json()).find("stdout:\nlate"), std::string::npos);
  EXPECT_EQ(Ask("POST", kPath, read).Json().at("result").at("isError"), true) << "told once";
}

}  // namespace
}  // namespace sandbar::api
