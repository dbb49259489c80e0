// Published ports through the role Ports, over the fake engine.
#include "sandbox/ports/routes.h"

#include <gmock/gmock.h>

#include "http/byte_stream.h"
#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using testing::MatchesRegex;

TEST(Routes, KeptPortsKeepTheirs) {
  auto first = MakeRoutes({3000, 4000}, {});
  EXPECT_THAT(first[0].subdomain, MatchesRegex("sb-[a-z0-9]{12}"));
  EXPECT_NE(first[0].subdomain, first[1].subdomain);
  first[1].token = "t";
  auto second = MakeRoutes({5000, 4000}, first);
  EXPECT_EQ(second[1], first[1]);
  EXPECT_EQ(second[0].port, 5000);
  EXPECT_NE(MakeRoutes({3000}, second)[0].subdomain, first[0].subdomain);
}

TEST_F(DomainTest, RoutesAreFoundByNameUntilTheyGo) {
  Boot();
  CreateSpec spec;
  spec.name = "demo";
  spec.ports = {3000, 4000};
  auto view = world.Create(spec);
  ASSERT_EQ(view.sandbox.routes.size(), 2U);
  const std::string name = view.sandbox.routes[1].subdomain;
  auto found = world.Run(world.ports->FindRoute(name));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->route.port, 4000);
  EXPECT_EQ(found->session, view.session.id);
  EXPECT_EQ(found->sandbox, "demo");

  UpdateSpec update;
  update.ports = std::vector<int>{4000, 5000};
  auto updated = world.Run(world.sandboxes->Update(world.scope, "demo", update));
  ASSERT_TRUE(updated) << updated.error().message;
  EXPECT_EQ(updated->routes[0].subdomain, name);
  EXPECT_TRUE(world.Run(world.ports->FindRoute(name)));
  auto gone = world.Run(world.ports->FindRoute(view.sandbox.routes[0].subdomain));
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
  update.ports = std::vector<int>{80};
  EXPECT_EQ(world.Run(world.sandboxes->Update(world.scope, "demo", update)).error().code, Code::kBadRequest);

  ASSERT_TRUE(world.Run(world.sandboxes->Delete(world.scope, "demo", false)));
  EXPECT_FALSE(world.Run(world.ports->FindRoute(name)));
}

TEST_F(DomainTest, PortsAreDialledInTheMachine) {
  Boot();
  auto view = world.Create({});
  const std::string id = view.session.id;
  auto closed = world.Run(world.ports->Dial(world.scope, id, 3000));
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, Code::kUnavailable);
  Fd guest;
  world.host.Find(view.session.machine_id)->ports[3000] = [&](Fd fd) { guest = std::move(fd); };
  auto open = world.Run(world.ports->Dial(world.scope, id, 3000));
  ASSERT_TRUE(open) << open.error().message;
  EXPECT_TRUE(guest);
  open->traffic->written += 100;
  open->traffic->read += 2000;
  for (int port : {-1, 0, 1, 65536})
    EXPECT_EQ(world.Run(world.ports->Dial(world.scope, id, port)).error().code, Code::kBadRequest) << port;
  Scope other = world.scope;
  other.team = "team_b";
  EXPECT_EQ(world.Run(world.ports->Dial(other, id, 3000)).error().code, Code::kNotFound);
  ASSERT_TRUE(world.Run(world.sessions->Stop(world.scope, id)));
  auto stopped = world.Run(world.sessions->Get(world.scope, id));
  ASSERT_TRUE(stopped) << stopped.error().message;
  EXPECT_EQ(stopped->session.ingress, 100u);
  EXPECT_EQ(stopped->session.egress, 2000u);
  EXPECT_EQ(world.Run(world.ports->Dial(world.scope, id, 3000)).error().code, Code::kStopped);
}

TEST_F(DomainTest, RouteTokensAreKeptAsHashes) {
  Boot();
  CreateSpec spec;
  spec.name = "demo";
  spec.ports = {3000};
  world.Create(spec);
  auto route = world.Run(world.ports->SetToken(world.scope, "demo", 3000, "sbp_secret"));
  ASSERT_TRUE(route) << route.error().message;
  EXPECT_FALSE(route->token.contains("secret"));
  EXPECT_TRUE(RouteTokenMatches(*route, "sbp_secret"));
  EXPECT_FALSE(RouteTokenMatches(*route, "sbp_Secret"));
  EXPECT_FALSE(RouteTokenMatches(*route, ""));
  route = world.Run(world.ports->SetToken(world.scope, "demo", 3000, std::nullopt));
  ASSERT_TRUE(route);
  EXPECT_EQ(route->token, "");
  EXPECT_FALSE(RouteTokenMatches(*route, "")) << "an open route has no token that fits";
  EXPECT_EQ(world.Run(world.ports->SetToken(world.scope, "demo", 4000, "x")).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace sandbar::sandbox
