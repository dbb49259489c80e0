// Handlers over the real HTTP server: routing, scope, shapes, files.
#include "api/api.h"

#include "support/api/api_fixture.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr const char* kSession = "/api/v2/sandboxes/sessions/sbx_1";

TEST_F(ApiFixture, HealthNeedsNoToken) {
  Answer answer = Ask("GET", "/health", "", "Authorization-X: none\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, R"({"status":"ok","version":"1.2.3"})");
  EXPECT_EQ(answer.Get("x-content-type-options"), "nosniff");
  EXPECT_EQ(answer.Get("cache-control"), "no-store");
  EXPECT_EQ(answer.Get("access-control-allow-origin"), "");
  Answer head = Ask("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
}

TEST_F(ApiFixture, UnknownPathAndWrongMethod) {
  Answer unknown = Ask("GET", "/v2/nothing");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.Code(), "not_found");
  Answer wrong = Ask("PUT", "/v2/sandboxes/demo");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.Code(), "method_not_allowed");
  EXPECT_EQ(wrong.Get("allow"), "GET, PATCH, DELETE");
  EXPECT_EQ(Ask("HEAD", "/v2/sandboxes").status, 405);
  Answer preflight = Ask("OPTIONS", "/v2/sandboxes");
  EXPECT_EQ(preflight.status, 405);
  EXPECT_EQ(preflight.Get("access-control-allow-origin"), "");
}

TEST_F(ApiFixture, HostAndOrigin) {
  EXPECT_EQ(Ask("GET", "/health", "", Host("localhost")).status, 200);
  Answer foreign = Ask("GET", "/health", "", Host("rebound.example"));
  EXPECT_EQ(foreign.status, 403);
  EXPECT_EQ(foreign.Code(), "misdirected_request");
  Answer preview = Ask("GET", "/v2/sandboxes", "", Host("sb-abc.localhost"));
  EXPECT_EQ(preview.status, 404);
  EXPECT_EQ(preview.Code(), "SANDBOX_NOT_FOUND");
  EXPECT_EQ(Ask("GET", "/v2/sandboxes", "", "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(Ask("GET", "/v2/sandboxes", "", "Sec-Fetch-Site: cross-site\r\n").status, 403);
  EXPECT_EQ(OnLoop([&] { return domain_.calls; }), 0);
  EXPECT_EQ(Ask("GET", "/v2/sandboxes", "", "Sec-Fetch-Mode: cors\r\n").status, 200);
}

TEST_F(ApiFixture, ParseErrorsAreAnswersToo) {
  Client client = Connect();
  client.Send("GET / HTTP/1.1\r\n\r\n");
  Answer answer = client.ReadAnswer();
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.Code(), "bad_request");
  EXPECT_EQ(answer.Get("x-content-type-options"), "nosniff");
}

TEST_F(ApiFixture, Create) {
  Answer answer = Ask("POST", "/api/v3/sandboxes?teamId=team_x", R"({"projectId":"prj_x","ports":[]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.Get("content-type"), "application/json");
  json::object body = answer.Json();
  EXPECT_EQ(body.at("session").at("id"), "sbx_1");
  EXPECT_EQ(body.at("sandbox").at("currentSessionId"), "sbx_1");
  EXPECT_EQ(body.at("sandbox").at("persistent"), false);
  EXPECT_TRUE(body.at("routes").as_array().empty());
  OnLoop([&] {
    EXPECT_EQ(domain_.scope.team, "team_x");
    EXPECT_EQ(domain_.scope.project, "prj_x");
    EXPECT_TRUE(domain_.scope.any_project);
  });
}

TEST_F(ApiFixture, CreateThatCannotBe) {
  EXPECT_EQ(Ask("POST", "/v2/sandboxes", R"({"ports":["x"]})").Code(), "bad_request");
  EXPECT_EQ(Ask("POST", "/v2/sandboxes", "{nope").Code(), "bad_request");
  EXPECT_EQ(Ask("POST", "/v2/sandboxes?projectId=prj_a", R"({"projectId":"prj_b"})").status, 400);
  EXPECT_EQ(OnLoop([&] { return domain_.calls; }), 0);
  OnLoop([&] { domain_.fail = Error{Code::kConflict, "the drive is attached elsewhere"}; });
  Answer held = Ask("POST", "/v2/sandboxes", "{}");
  EXPECT_EQ(held.status, 409);
  EXPECT_EQ(held.Code(), "conflict");
}

TEST_F(ApiFixture, LargeBodyIs413) {
  std::string body = R"({"name":")" + std::string(5 << 20, 'x') + "\"}";
  Answer answer = Ask("POST", "/v2/sandboxes", body);
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.Code(), "payload_too_large");
}

TEST_F(ApiFixture, GetResumesOnlyWhenAsked) {
  Answer plain = Ask("GET", "/v2/sandboxes/demo?projectId=prj_sandbar");
  EXPECT_EQ(plain.status, 200);
  EXPECT_FALSE(plain.Json().contains("resumed"));
  EXPECT_FALSE(OnLoop([&] { return domain_.flag; }));
  Answer resumed = Ask("GET", "/v2/sandboxes/demo?resume=true");
  EXPECT_EQ(resumed.Json().at("resumed"), false);
  EXPECT_TRUE(OnLoop([&] { return domain_.flag; }));
  OnLoop([&] { domain_.fail = Error{Code::kSnapshotMissing, "never had one"}; });
  Answer none = Ask("GET", "/v2/sandboxes/demo?resume=true");
  EXPECT_EQ(none.status, 400);
  EXPECT_EQ(none.Code(), "snapshot_not_found");
}

TEST_F(ApiFixture, ListUpdateDelete) {
  json::object list = Ask("GET", "/v2/sandboxes?project=prj_x&limit=1&tags=a:b").Json();
  EXPECT_EQ(list.at("sandboxes").as_array().size(), 1U);
  EXPECT_EQ(list.at("pagination").at("next"), "cursor-2");
  OnLoop([&] {
    EXPECT_EQ(domain_.scope.project, "prj_x");
    EXPECT_EQ(domain_.list->limit, 1);
  });
  Answer updated = Ask("PATCH", "/v2/sandboxes/demo", R"({"timeout":60000,"ports":[]})");
  EXPECT_TRUE(updated.Json().at("routes").as_array().empty());
  EXPECT_EQ(OnLoop([&] { return domain_.update->timeout_ms; }), 60000);
  EXPECT_FALSE(Ask("PATCH", "/v2/sandboxes/demo", "{}").Json().contains("routes"));
  EXPECT_EQ(Ask("DELETE", "/v2/sandboxes/demo").Json().at("sandbox").at("name"), "demo");
}

TEST_F(ApiFixture, Sessions) {
  EXPECT_EQ(Ask("GET", "/v2/sandboxes/sessions?name=demo").Json().at("sessions").as_array().size(), 1U);
  EXPECT_EQ(OnLoop([&] { return domain_.list->sandbox; }), "demo");
  EXPECT_EQ(Ask("GET", kSession).Json().at("session").at("id"), "sbx_1");
  Answer policy = Ask("POST", std::string(kSession) + "/network-policy", R"({"mode":"deny-all"})");
  EXPECT_EQ(policy.Json().at("session").at("networkPolicy").at("mode"), "deny-all");
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/network-policy", R"({"allow":["x.com"]})").status, 200);
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/network-policy", R"({"alow":["x.com"]})").status, 400);
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/extend-timeout", R"({"duration":5000})").status, 200);
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 5000);
  json::object stopped = Ask("POST", std::string(kSession) + "/stop").Json();
  EXPECT_EQ(stopped.at("session").at("status"), "stopped");
  EXPECT_EQ(stopped.at("session").at("duration"), 2500);
  EXPECT_EQ(stopped.at("sandbox").at("status"), "stopped");
}

TEST_F(ApiFixture, Snapshots) {
  Answer taken = Ask("POST", std::string(kSession) + "/snapshot", R"({"expiration":86400000})");
  EXPECT_EQ(taken.status, 201);
  EXPECT_EQ(taken.Json().at("snapshot").at("sourceSessionId"), "sbx_1");
  EXPECT_EQ(taken.Json().at("session").at("id"), "sbx_1");
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 86400000);
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/snapshot").status, 201);
  EXPECT_EQ(Ask("POST", "/v1/sandboxes/sbx_1/snapshot").Json().at("snapshot").at("sourceSandboxId"), "sbx_1");
  EXPECT_EQ(Ask("GET", "/v2/sandboxes/snapshots?project=p").Json().at("pagination").at("next"), "cursor-2");
  EXPECT_EQ(Ask("GET", "/v2/sandboxes/snapshots/snap_1").Json().at("snapshot").at("status"), "created");
  json::object tree = Ask("GET", "/v2/sandboxes/snapshots/tree?snapshotId=snap_1&limit=3&sortOrder=asc").Json();
  EXPECT_EQ(tree.at("anchor").at("count"), "2");
  EXPECT_EQ(tree.at("pagination").at("next"), "snap_1");
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 3);
  EXPECT_EQ(Ask("GET", "/v2/sandboxes/snapshots/tree?snapshotId=snap_1&limit=11").status, 400);
  EXPECT_EQ(Ask("GET", "/v2/sandboxes/snapshots/tree").status, 400);
  EXPECT_EQ(Ask("DELETE", "/v2/sandboxes/snapshots/snap_1").Json().at("snapshot").at("status"), "deleted");
  EXPECT_EQ(Ask("POST", "/v2/sandboxes/demo/fork", R"({"name":"copy","env":{"A":"1"},"ports":[]})").status, 200);
  OnLoop([&] {
    EXPECT_EQ(domain_.fork->name, "copy");
    EXPECT_EQ(domain_.fork->changes.env->at("A"), "1");
    EXPECT_FALSE(domain_.fork->changes.tags.has_value());
  });
  EXPECT_EQ(Ask("POST", "/v2/sandboxes/demo/fork").status, 200);
  EXPECT_EQ(Ask("DELETE", "/v2/sandboxes/demo?deleteOrphanSnapshots=true").status, 200);
  EXPECT_TRUE(OnLoop([&] { return domain_.orphans; }));
}

TEST_F(ApiFixture, SessionErrorsDriveTheClient) {
  for (auto [code, status, name] :
       {std::tuple{Code::kStopped, 410, "sandbox_stopped"}, std::tuple{Code::kStopping, 422, "sandbox_stopping"},
        std::tuple{Code::kNotFound, 404, "not_found"},
        std::tuple{Code::kExecutableNotFound, 400, "executable_not_found"},
        std::tuple{Code::kUnavailable, 503, "service_unavailable"}}) {
    Connect();
    OnLoop([&, c = code] { domain_.fail = Error{c, "because"}; });
    Answer answer = Ask("POST", std::string(kSession) + "/cmd", R"({"command":"x","wait":true,"logs":true})");
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(answer.Code(), name);
    EXPECT_EQ(answer.Message(), "because");
  }
}

TEST_F(ApiFixture, V1Facade) {
  json::object made = Ask("POST", "/api/v1/sandboxes?teamId=t", R"({"projectId":"p","ports":[]})").Json();
  EXPECT_EQ(made.at("sandbox").at("id"), "sbx_1");
  EXPECT_EQ(made.at("sandbox").at("runtime"), "node24");
  EXPECT_FALSE(made.contains("session"));
  EXPECT_TRUE(OnLoop([&] { return domain_.create->v1; }));
  EXPECT_EQ(Ask("GET", "/v1/sandboxes/sbx_1").Json().at("sandbox").at("status"), "running");
  json::object page = Ask("GET", "/v1/sandboxes?project=p&until=99&limit=1").Json();
  EXPECT_EQ(page.at("sandboxes").as_array().size(), 1U);
  EXPECT_TRUE(page.at("pagination").at("next").is_int64());
  EXPECT_TRUE(page.at("pagination").at("prev").is_int64());
  EXPECT_EQ(OnLoop([&] { return domain_.list->until; }), 99);
  json::object killed = Ask("POST", "/v1/sandboxes/sbx_1/cmd_1/kill", R"({"signal":9})").Json();
  EXPECT_EQ(killed.at("command").at("sandboxId"), "sbx_1");
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 9);
  EXPECT_EQ(Ask("POST", "/v1/sandboxes/sbx_1/extend-timeout", R"({"duration":5000})").Json().count("sandbox"), 1U);
  EXPECT_EQ(Ask("GET", "/v1/sandboxes/snapshots").Json().at("pagination").as_object().count("prev"), 1U);
  EXPECT_EQ(Ask("POST", "/v1/sandboxes/sbx_1/stop").Json().at("sandbox").at("status"), "stopped");
}

// The protocol's CLI asks for a port where nothing listens; nobody else is told of one.
TEST_F(ApiFixture, InteractivePortIsOnlyForWhoeverInsists) {
  EXPECT_EQ(Ask("POST", "/v2/sandboxes", R"({"projectId":"p","__interactive":true})")
                .Json()
                .at("session")
                .at("interactivePort"),
            26661);
  EXPECT_FALSE(Ask("POST", "/v2/sandboxes", R"({"projectId":"p"})")
                   .Json()
                   .at("session")
                   .as_object()
                   .contains("interactivePort"));
  EXPECT_FALSE(Ask("GET", "/v2/sandboxes/box").Json().at("session").as_object().contains("interactivePort"));
  EXPECT_EQ(
      Ask("POST", "/v2/sandboxes/box/fork", R"({"__interactive":true})").Json().at("session").at("interactivePort"),
      26661);
}

// `sandbox sh` makes a sandbox and asks for a shell in it; what it leaves when that is refused must not run on.
TEST_F(ApiFixture, ATerminalIsOpenedByATicketOnly) {
  json::object ticket = Ask("POST", std::string(kSession) + "/interactive", "{}").Json();
  const std::string url(ticket.at("url").as_string());
  EXPECT_TRUE(url.starts_with("ws://")) << url;
  EXPECT_TRUE(url.ends_with("/x/v1/terminal")) << url;
  EXPECT_GE(ticket.at("token").as_string().size(), 32U);
  // Neither a ticket nor the API's token opens it without an upgrade; clients/streams.test.mjs has the rest.
  EXPECT_EQ(Ask("GET", "/x/v1/terminal?token=" + std::string(ticket.at("token").as_string())).status, 400);
}

TEST_F(ApiFixture, Drives) {
  Answer made = Ask("POST", "/v2/sandboxes/drives/d", R"({"projectId":"prj_a","maxSizeBytes":5000000})");
  EXPECT_EQ(made.status, 201);
  EXPECT_EQ(made.Json().at("drive").at("name"), "d");
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 5000000);
  EXPECT_EQ(OnLoop([&] { return domain_.scope.project; }), "prj_a");
  EXPECT_EQ(Ask("POST", "/v1/drives/d?projectId=prj_a", "").status, 200);
  EXPECT_EQ(Ask("POST", "/v2/sandboxes/drives/d", R"({"maxSizeBytes":-1})").status, 400);
  json::object list = Ask("GET", "/v2/sandboxes/drives?projectId=prj_a&sortBy=updatedAt&namePrefix=x").Json();
  EXPECT_EQ(list.at("drives").as_array().size(), 1U);
  EXPECT_EQ(list.at("pagination").at("next"), "cursor-2");
  EXPECT_EQ(OnLoop([&] { return domain_.list->sort_by + domain_.list->name_prefix; }), "updatedAtx");
  EXPECT_EQ(Ask("DELETE", "/v2/sandboxes/drives/d?projectId=prj_a").Json().at("drive").at("name"), "d");
  EXPECT_EQ(OnLoop([&] { return domain_.asked; }), "d");
}

TEST_F(ApiFixture, ReadFile) {
  domain_.pieces = {std::string("a\0b", 3), std::string(200'000, 'z'), "end"};
  Answer answer = Ask("POST", std::string(kSession) + "/fs/read", R"({"path":"x.bin","cwd":"/tmp"})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Get("content-type"), "application/octet-stream");
  EXPECT_EQ(answer.Get("x-content-type-options"), "nosniff");
  EXPECT_EQ(answer.body, std::string("a\0b", 3) + std::string(200'000, 'z') + "end");
  EXPECT_EQ(OnLoop([&] { return domain_.cwd; }), "/tmp");
  OnLoop([&] { domain_.pieces.clear(); });
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/fs/read", R"({"path":"empty"})").status, 200);
}

TEST_F(ApiFixture, ReadFileErrors) {
  domain_.fail = Error{Code::kFileError, "is a directory"};
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/fs/read", R"({"path":"d"})").Code(), "file_error");
  // v1 would take the error's body for the file.
  EXPECT_EQ(Ask("POST", "/v1/sandboxes/sbx_1/fs/read", R"({"path":"d"})").status, 404);
  OnLoop([&] {
    domain_.fail.reset();
    domain_.read_ends_with = Error{Code::kFileError, "cannot be read"};
  });
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/fs/read", R"({"path":"d"})").status, 400);
  // Broken in the middle: the connection is cut, not ended.
  OnLoop([&] { domain_.pieces = {"part"}; });
  Client client = Connect();
  client.Request("POST", std::string(kSession) + "/fs/read", R"({"path":"d"})");
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_EQ(client.ReadChunk(), "part");
  client.ReadChunk();
  EXPECT_TRUE(client.cut());
}

TEST_F(ApiFixture, WriteStreamsTheBody) {
  std::string body(3 << 20, 'g');
  std::string gzip = "Content-Type: application/gzip\r\n";
  Answer answer = Ask("POST", std::string(kSession) + "/fs/write", body, gzip + "X-Cwd: /\r\n");
  EXPECT_EQ(answer.body, "{}");
  EXPECT_TRUE(OnLoop([&] { return domain_.written == body; }));
  EXPECT_EQ(OnLoop([&] { return domain_.cwd; }), "/");
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/fs/write", "x", gzip).status, 200);
  EXPECT_EQ(OnLoop([&] { return domain_.cwd; }), std::nullopt);
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/fs/write", "x", gzip + "X-Cwd: a\r\n").status, 400);
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/fs/write", "{}").status, 400);
}

TEST_F(ApiFixture, MakeDir) {
  EXPECT_EQ(Ask("POST", std::string(kSession) + "/fs/mkdir", R"({"path":"a/b","recursive":true})").body, "{}");
  OnLoop([&] {
    EXPECT_EQ(domain_.asked, "a/b");
    EXPECT_TRUE(domain_.flag);
  });
}

TEST_F(ApiFixture, Account) {
  EXPECT_EQ(Ask("GET", "/api/v2/user").Json().at("user").at("defaultTeamId"), "team_sandbar");
  EXPECT_EQ(Ask("GET", "/api/v2/teams/team_x").Json().at("slug"), "team_x");
  EXPECT_EQ(Ask("GET", "/api/v2/teams?limit=20").Json().at("teams").as_array().size(), 1U);
  json::object project = Ask("GET", "/api/v2/projects/vercel-sandbox-default-project").Json();
  EXPECT_EQ(project.at("id"), "prj_sandbar");
  EXPECT_EQ(Ask("POST", "/api/v11/projects", R"({"name":"mine","framework":null})").Json().at("name"), "mine");
}

TEST_F(ApiFixture, NativeSnapshots) {
  auto asked = [&] { return OnLoop([&] { return domain_.asked; }); };
  json::object verified = Ask("POST", "/x/v1/snapshots/snap_1/verify").Json();
  EXPECT_EQ(verified.at("snapshot").at("damage"), "changed /etc/passwd");
  EXPECT_EQ(verified.at("snapshot").at("verified"), false);
  EXPECT_EQ(Ask("GET", "/x/v1/notices?sandbox=demo").Json().at("notices").at(0).at("text"), "it fell back");
  EXPECT_EQ(Ask("GET", "/x/v1/sandboxes/demo").Json().at("notices").at(0).at("at"), 5);
  json::object diff = Ask("GET", "/x/v1/diff?a=snap_1&b=demo").Json();
  EXPECT_EQ(asked(), "snap_1..demo");
  EXPECT_EQ(diff.at("changes").at(0).at("sizeBefore"), 5);
  EXPECT_EQ(diff.at("changes").at(1).at("change"), "deleted");
  Ask("GET", "/x/v1/diff?a=demo");
  EXPECT_EQ(asked(), "..demo") << "against its image";
  EXPECT_EQ(Ask("GET", "/x/v1/diff").status, 400);
  EXPECT_EQ(Ask("POST", "/x/v1/sandboxes/fork/promote").status, 200);
  EXPECT_EQ(asked(), "fork>");
  Ask("POST", "/x/v1/sandboxes/fork/promote", R"({"into":"demo"})");
  EXPECT_EQ(asked(), "fork>demo");
  EXPECT_EQ(Ask("POST", "/x/v1/sandboxes/demo/fork", R"({"live":true})").status, 200);
  EXPECT_TRUE(OnLoop([&] { return domain_.fork->live; }));
  EXPECT_EQ(Ask("POST", "/x/v1/sandboxes/demo/pause").status, 200);
  EXPECT_EQ(OnLoop([&] { return domain_.paused; }), "demo");
  EXPECT_EQ(Ask("POST", "/x/v1/sandboxes/demo/resume").status, 200);
  EXPECT_EQ(OnLoop([&] { return domain_.resume_from; }), sandbox::ResumeFrom::kEither);
  EXPECT_EQ(Ask("POST", "/x/v1/sandboxes/demo/resume", R"({"from":"memory"})").status, 200);
  EXPECT_EQ(OnLoop([&] { return domain_.resume_from; }), sandbox::ResumeFrom::kMemory);
  EXPECT_EQ(Ask("POST", "/x/v1/sandboxes/demo/resume", R"({"from":"tape"})").status, 400);
  json::object race =
      Ask("POST", "/x/v1/race", R"({"source":"demo","command":"make","count":3,"score":"exit"})").Json();
  EXPECT_EQ(asked(), "demo make  promote");
  EXPECT_EQ(race.at("racers").as_array().size(), 3U);
  EXPECT_EQ(race.at("winner"), 0);
  EXPECT_EQ(Ask("POST", "/x/v1/race", R"({"source":"demo"})").status, 400);
  EXPECT_EQ(Ask("POST", "/x/v1/race", R"({"source":"demo","command":"x","best":"worst"})").status, 400);
}

TEST_F(ApiFixture, Native) {
  json::object info = Ask("GET", "/x/v1/info").Json();
  EXPECT_EQ(info.at("engine"), "fake");
  EXPECT_FALSE(info.at("engines").at(0).as_object().contains("whyNot"));
  EXPECT_EQ(
      info.at("engines").at(1),
      (json::object{{"name", "strong"}, {"class", 3}, {"usable", false}, {"whyNot", "no KVM"}, {"nesting", false}}));
  json::object inspect = Ask("GET", "/x/v1/sandboxes/demo").Json();
  EXPECT_EQ(inspect.at("isolation").at("class"), 1);
  EXPECT_EQ(inspect.at("session").at("id"), "sbx_1");
  json::object log = Ask("GET", "/x/v1/sessions/sbx_1/network/log").Json();
  EXPECT_EQ(log.at("denials").at(0).at("host"), "example.com");
  EXPECT_EQ(log.at("attempts").at(0).at("allowed"), false);
  EXPECT_EQ(log.at("networkPolicy").at("mode"), "deny-all");
  json::object suggested = Ask("GET", "/x/v1/sessions/sbx_1/network/suggest").Json();
  EXPECT_EQ(suggested.at("networkPolicy").at("allow"), json::array{"example.com"});
  json::object tried =
      Ask("POST", "/x/v1/sessions/sbx_1/network/test", R"({"policy":{"allow":["example.com"]}})").Json();
  EXPECT_EQ(tried.at("changes").at(0).at("allowedThen"), true);
  EXPECT_EQ(Ask("POST", "/x/v1/sessions/sbx_1/network/test", R"({"policy":{"mode":"deny-all"}})").Json().at("changes"),
            json::array{});
  EXPECT_EQ(Ask("POST", "/x/v1/sessions/sbx_1/network/test", R"({"policy":{"subnets":{"allow":["x"]}}})").status, 400);
  EXPECT_EQ(Ask("GET", "/x/v1/sessions/sbx_1/denials").Json().at("denials").at(0).at("target"), "example.com");
  EXPECT_EQ(Ask("GET", "/x/v1/routes").Json().at("routes").as_array().size(), Api::Routes().size());
}

TEST_F(ApiFixture, SdkDoor) {
  Answer hook = Ask("GET", "/sdk/register.mjs", "", "Authorization-X: none\r\n");
  EXPECT_EQ(hook.body, "console.log('hook')\n");
  EXPECT_TRUE(hook.Get("content-type").starts_with("text/javascript"));
  std::string script = Ask("GET", "/sdk/env.sh?teamId=team_x&projectId=prj_x").body;
  EXPECT_TRUE(script.contains("export SANDBAR_URL='http://127.0.0.1:")) << script;
  size_t at = script.find("VERCEL_OIDC_TOKEN='") + 19;
  auto claims = VerifyJwt(kTestKey, script.substr(at, script.find('\'', at) - at), NowMs());
  ASSERT_TRUE(claims.has_value());
  EXPECT_EQ(claims->team, "team_x");
  EXPECT_EQ(claims->project, "prj_x");
}

TEST_F(ApiFixture, SdkDoorRenewsNothing) {
  const int64_t now = NowMs();
  std::string token = MintJwt(kTestKey, {"team_a", "prj_a", now + 600'000}, now);
  const int64_t ends = VerifyJwt(kTestKey, token, now)->expires_at_ms;
  for (int i = 0; i < 3; ++i) {
    std::string script = Ask("GET", "/sdk/env.sh", "", "Authorization: Bearer " + token + "\r\n").body;
    size_t at = script.find("VERCEL_OIDC_TOKEN='") + 19;
    token = script.substr(at, script.find('\'', at) - at);
    auto claims = VerifyJwt(kTestKey, token, NowMs());
    ASSERT_TRUE(claims.has_value());
    EXPECT_EQ(claims->expires_at_ms, ends) << "no later than the token that asked";
    EXPECT_EQ(claims->project, "prj_a");
  }
}

TEST_F(ApiFixture, SdkDoorIsAShellScript) {
  std::string script = Ask("GET", "/sdk/env.sh").body;
  char dir[] = "/tmp/sandbar-env-XXXXXX";
  ASSERT_NE(::mkdtemp(dir), nullptr);
  std::string path = std::string(dir) + "/env.sh";
  FILE* file = std::fopen(path.c_str(), "w");
  std::fwrite(script.data(), 1, script.size(), file);
  std::fclose(file);
  std::string run = "cd " + std::string(dir) + " && XDG_CACHE_HOME=" + dir +
                    " NODE_OPTIONS=--x sh -euc 'eval \"$(cat env.sh)\"; eval \"$(cat env.sh)\"; "
                    "test \"$NODE_OPTIONS\" = \"--x --import=\\\"file://$(echo " +
                    dir + "/sandbar/register-*.mjs)\\\"\"; grep -q hook " + dir + "/sandbar/register-*.mjs'";
  EXPECT_EQ(std::system(run.c_str()), 0) << run;
  EXPECT_EQ(std::system(("rm -r " + std::string(dir)).c_str()), 0);
}

}  // namespace
}  // namespace sandbar::api
