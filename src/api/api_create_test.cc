// Creates whose answer gets lost, and what else handlers do around a call.
#include <gtest/gtest.h>

#include "support/api/api_fixture.h"

namespace sandbar::api {
namespace {

constexpr char kCreate[] = "/v2/sandboxes?teamId=team_sandbar";
constexpr char kNamed[] = R"({"projectId":"prj_sandbar","name":"demo"})";
constexpr char kNameless[] = R"({"projectId":"prj_sandbar"})";

class ApiCreateTest : public ApiFixture {
 protected:
  // A create that is under way when its client leaves.
  void Abandon(const char* body) {
    domain_.hold_create = true;
    Client client = Connect();
    client.Request("POST", kCreate, body);
    Until([this] { return domain_.waiting_creates == 1; });
    client.Close();
  }
  void Release() {
    OnLoop([this] {
      domain_.hold_create = false;
      domain_.Wake();
    });
    Until([this] { return domain_.waiting_creates == 0; });
  }
};

TEST_F(ApiCreateTest, AnIdenticalCreateGetsWhatTheUnansweredOneMade) {
  Abandon(kNamed);
  Release();
  OnLoop([this] { domain_.name_taken = true; });
  EXPECT_EQ(Ask("POST", kCreate, R"({"projectId":"prj_sandbar","name":"demo","timeout":5000})").status, 400);
  OnLoop([this] { domain_.AddKey("other"); });
  EXPECT_EQ(Ask("POST", kCreate, kNamed, "Authorization: Bearer other\r\n").status, 400) << "another caller's";
  Answer again = Ask("POST", kCreate, kNamed);
  EXPECT_EQ(again.status, 200) << again.body;
  EXPECT_TRUE(OnLoop([this] { return domain_.flag; })) << "it waits for the first one";
  Answer third = Ask("POST", kCreate, kNamed);
  EXPECT_EQ(third.status, 400);
  EXPECT_EQ(third.Code(), "bad_request");
  EXPECT_EQ(OnLoop([this] { return domain_.deleted; }), 0);
}

// The client's getOrCreate asks for what is there before it creates.
TEST_F(ApiCreateTest, AGetThatDemandsIsolationIsNotGivenLess) {
  const std::string get = "/v2/sandboxes/demo?teamId=team_sandbar&projectId=prj_sandbar&resume=true";
  EXPECT_EQ(Ask("GET", get + "&__isolation=1").status, 200);
  EXPECT_EQ(Ask("GET", get + "&__isolation=namespaces").status, 200);
  EXPECT_EQ(Ask("GET", get + "&__isolation=gvisor").status, 409);
  Answer less = Ask("GET", get + "&__isolation=3");
  EXPECT_EQ(less.status, 409);
  EXPECT_TRUE(less.body.contains("class 1")) << less.body;
  EXPECT_EQ(Ask("GET", get + "&__isolation=4").status, 400);
  Answer lost = Ask("GET", get + "&__isolation=%5Bobject%20Object%5D");
  EXPECT_EQ(lost.status, 400);
  EXPECT_TRUE(lost.body.contains("__isolation: 3")) << lost.body;
  OnLoop([this] { domain_.session.isolation_class = 3; });
  EXPECT_EQ(Ask("GET", get + "&__isolation=%5Bobject%20Object%5D").status, 200) << "there is no more than that";
}

TEST_F(ApiCreateTest, AfterAMinuteItIsADuplicate) {
  Abandon(kNamed);
  Release();
  OnLoop([this] {
    domain_.name_taken = true;
    domain_.sandbox.created_at = NowMs() - 61'000;
  });
  EXPECT_EQ(Ask("POST", kCreate, kNamed).status, 400);
}

TEST_F(ApiCreateTest, AnAnsweredCreateIsNotGivenTwice) {
  EXPECT_EQ(Ask("POST", kCreate, kNamed).status, 200);
  OnLoop([this] { domain_.name_taken = true; });
  EXPECT_EQ(Ask("POST", kCreate, kNamed).status, 400);
}

TEST_F(ApiCreateTest, ANamelessOneIsUndoneWhenNobodyHearsOfIt) {
  Abandon(kNameless);
  Release();
  Until([this] { return domain_.deleted == 1; });
  EXPECT_TRUE(OnLoop([this] { return domain_.orphans; }));
}

TEST_F(ApiCreateTest, SessionsAreInUseWhileTheyAreTalkedTo) {
  Client client = Connect();
  client.Request("GET", "/v2/sandboxes/sessions/sbx_1/cmd/cmd_1/logs?teamId=team_sandbar");
  Until([this] { return domain_.users == 1; });
  OnLoop([this] { domain_.EndLog(); });
  EXPECT_EQ(client.ReadAnswer().status, 200);
  Until([this] { return domain_.users == 0; });
}

TEST_F(ApiCreateTest, ListsSayWhenRunningOnesEnd) {
  store::Session session;
  session.status = store::Status::kRunning;
  session.started_at = 1000;
  session.timeout_ms = 500;
  Connect();  // starts the loop
  OnLoop([this, session] { domain_.running = session; });
  Answer list = Ask("GET", "/v2/sandboxes?teamId=team_sandbar&project=prj_sandbar");
  EXPECT_EQ(list.Json().at("sandboxes").at(0).at("expiresAt"), 1500) << list.body;
}

TEST_F(ApiCreateTest, UsageIsPriced) {
  config_.prices.currency = "EUR";
  config_.prices.cpu_hour = {2.0, 1.0};
  config_.prices.memory_gb_hour = {0.5, 0.0};
  config_.prices.creation = {0.25, 0.0};
  config_.prices.transfer_gb = {3.0, 10.0};
  store::ProjectUsage used{"team_sandbar",      "prj_sandbar", 4,          3 * 3'600'000,
                           2048ULL * 3'600'000, 1'000'000'000, 500'000'000};
  Connect();
  OnLoop([this, used] { domain_.usage = {used}; });
  auto project = Ask("GET", "/x/v1/usage?teamId=team_sandbar").Json().at("projects").at(0).as_object();
  EXPECT_DOUBLE_EQ(project.at("cpuHours").to_number<double>(), 3.0);
  EXPECT_DOUBLE_EQ(project.at("memoryGbHours").to_number<double>(), 2.0);
  EXPECT_DOUBLE_EQ(project.at("transferGb").to_number<double>(), 1.5);
  const auto& cost = project.at("cost").as_object();
  EXPECT_DOUBLE_EQ(cost.at("cpu").to_number<double>(), 4.0) << "the first hour is free";
  EXPECT_DOUBLE_EQ(cost.at("memory").to_number<double>(), 1.0);
  EXPECT_DOUBLE_EQ(cost.at("creations").to_number<double>(), 1.0);
  EXPECT_DOUBLE_EQ(cost.at("transfer").to_number<double>(), 0.0);
  EXPECT_DOUBLE_EQ(cost.at("total").to_number<double>(), 6.0);
}

}  // namespace
}  // namespace sandbar::api
