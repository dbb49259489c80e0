// Sealed values are their sandbox's alone, and those of an earlier server still open.
#include "sandbox/seals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "egress/policy_json.h"
#include "store/sqlite_db.h"
#include "support/sandbox/test_world.h"
#include "support/store/database_v10.h"

namespace sandbar::sandbox {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

egress::NetworkPolicy Injects(const std::string& value) {
  return *egress::ParsePolicy(R"({"allow":{"api.example":[{"transform":[{"headers":{"authorization":")" + value +
                              R"("}}]}]}})");
}

class SealsTest : public DomainTest {
 protected:
  // The database of a server that bound values to names, and its snapshots on this host's disk.
  void UseFormerDatabase() {
    std::filesystem::create_directories(world.config.data_dir);
    auto db = store::Db::Open(world.config.data_dir + "/sandbar.db");
    ASSERT_TRUE(db) << db.error().message;
    ASSERT_TRUE((*db)->Exec(store::testing::kDatabaseV10));
    world.scope.team = "team_a";
    world.scope.project = "prj_a";
    for (const char* id :
         {"snap_Hu7LDlaNO1AXhCxKXFWRfeUg", "snap_5Ba7XEg17TOdHuxnCwI9Fwr5", "snap_o2IhiBgI5I4Ynv2NDwewIlJC"})
      world.host.snapshots.insert(id);
  }
  store::SandboxKey Key(const std::string& name) const { return {world.scope.team, world.scope.project, name}; }
  store::Sandbox Row(const std::string& name) {
    auto own = world.OpenStore();
    auto found = own->FindSandbox(Key(name));
    EXPECT_TRUE(found && *found) << name;
    return found && *found ? **found : store::Sandbox{};
  }
  // Writes the sealed values of one row into another, as somebody with access to the file can.
  void Plant(const store::Sandbox& from, const std::string& into) {
    auto own = world.OpenStore();
    auto edit = [&](store::Sandbox& row) -> Result<> {
      row.env = from.env;
      row.network = from.network;
      return {};
    };
    ASSERT_TRUE(own->EditSandbox(Key(into), edit));
  }
  // What a new session of it gets.
  struct Got {
    std::string env;
    egress::NetworkPolicy policy;
  };
  Got Resume(const std::string& name) {
    auto view = world.Run(world.sandboxes->Get(world.scope, name, true));
    EXPECT_TRUE(view) << (view ? "" : view.error().message);
    if (!view) return {};
    auto command = world.Exec(view->session.id, World::Command({"env"}));
    Got got{world.Log(view->session.id, command.id).out, {}};
    got.policy = world.Run(world.sessions->Network(world.scope, view->session.id))->policy->policy();
    EXPECT_TRUE(world.Run(world.sessions->Stop(world.scope, view->session.id)));
    return got;
  }
  void ExpectAll() {
    for (const std::string name : {"alpha", "beta"}) {
      const Got got = Resume(name);
      EXPECT_THAT(got.env, HasSubstr("TOKEN=" + name + "-variable"));
      EXPECT_EQ(got.policy, Injects(name + "-injected"));
    }
  }
  void ExpectNothing(const std::string& name) {
    const Got got = Resume(name);
    EXPECT_THAT(got.env, Not(HasSubstr("TOKEN")));
    EXPECT_EQ(got.policy.mode, egress::EgressMode::kDenyAll);
  }
};

TEST_F(SealsTest, ValuesBoundToNamesAreBoundToIdsAtTheFirstStart) {
  UseFormerDatabase();
  std::map<std::string, store::Sandbox> former;
  for (const char* name : {"alpha", "beta"}) former[name] = Row(name);
  Boot();
  const Vault vault(world.secret);
  for (const char* name : {"alpha", "beta"}) {
    const store::Sandbox row = Row(name);
    EXPECT_EQ(row.id, former[name].id);
    EXPECT_EQ(row.version, 2);
    auto env = vault.OpenEnv(row.env, SealOwner(row));
    ASSERT_TRUE(env) << name;
    EXPECT_THAT(*env, Contains(Pair("TOKEN", name + std::string("-variable"))));
    EXPECT_TRUE(vault.Open(row.network->sealed, SealOwner(row)));
    EXPECT_EQ(row.network->shown, former[name].network->shown);
  }
  EXPECT_EQ(Row("gamma").version, 1) << "it has no secrets";
  ExpectAll();
  // The next start has nothing left to do.
  const int64_t version = Row("alpha").version;
  ASSERT_TRUE(world.Restart());
  EXPECT_EQ(Row("alpha").version, version);
  ExpectAll();

  // From now on a value that is bound to a name is a foreign one, also in the row that it was taken from.
  Plant(former["alpha"], "alpha");
  ASSERT_TRUE(world.Restart());
  ExpectNothing("alpha");
}

TEST_F(SealsTest, AStartWithAnotherKeyLosesNothing) {
  UseFormerDatabase();
  const std::string right = world.secret;
  world.secret = std::string(48, 'z');
  Boot();
  EXPECT_EQ(Row("alpha").version, 1) << "what does not open is left as it is";
  world.secret = right;
  ASSERT_TRUE(world.Restart());
  ExpectAll();
}

TEST_F(SealsTest, AStrangersValueDoesNotOpen) {
  UseFormerDatabase();
  // Before the upgrade: bound to another name.
  Plant(Row("beta"), "gamma");
  Boot();
  ExpectNothing("gamma");
  // After it: bound to another id.
  const store::Sandbox alpha = Row("alpha");
  Plant(alpha, "beta");
  ExpectNothing("beta");
  // A later sandbox of the same name is another one.
  ASSERT_TRUE(world.Run(world.sandboxes->Delete(world.scope, "alpha", false)));
  CreateSpec spec;
  spec.name = "alpha";
  spec.persistent = true;
  auto again = world.Create(spec);
  ASSERT_TRUE(world.Run(world.sessions->Stop(world.scope, again.session.id)));
  EXPECT_NE(Row("alpha").id, alpha.id);
  Plant(alpha, "alpha");
  ExpectNothing("alpha");
}

TEST_F(SealsTest, AForkHasAnIdOfItsOwnAndItsSourcesSecrets) {
  UseFormerDatabase();
  Boot();
  ForkSpec spec;
  spec.name = "fork";
  auto fork = world.Run(world.sandboxes->Fork(world.scope, "alpha", spec));
  ASSERT_TRUE(fork) << fork.error().message;
  EXPECT_NE(fork->sandbox.id, Row("alpha").id);
  EXPECT_EQ(fork->sandbox.id, Row("fork").id);
  ASSERT_TRUE(world.Run(world.sessions->Stop(world.scope, fork->session.id)));
  const Got got = Resume("fork");
  EXPECT_THAT(got.env, HasSubstr("TOKEN=alpha-variable"));
  EXPECT_EQ(got.policy, Injects("alpha-injected"));
}

}  // namespace
}  // namespace sandbar::sandbox
