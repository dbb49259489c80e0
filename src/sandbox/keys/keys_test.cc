// Keys of a whole domain: which key may make which others, and when keys end.
#include "sandbox/keys/keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/ids.h"
#include "crypto/digest.h"
#include "sandbox/keys/keys_impl.h"
#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

class KeysTest : public ::testing::Test {
 protected:
  KeysTest() { EXPECT_TRUE(world.Start()); }

  // The scope of a call with this key, for the project that it is bound to or the default one.
  static Scope As(const Principal& caller) {
    Scope scope;
    scope.caller = caller;
    scope.any_team = caller.team == "*";
    scope.any_project = caller.project == "*";
    scope.team = scope.any_team ? "team_a" : caller.team;
    scope.project = scope.any_project ? "prj_a" : caller.project;
    return scope;
  }
  Scope First() {
    std::ifstream in(world.config.data_dir + "/token");
    std::string secret;
    std::getline(in, secret);
    auto who = world.Run(world.keys->Identify(secret));
    EXPECT_TRUE(who);
    return who ? As(who->principal) : Scope{};
  }
  NewKey Make(const Scope& by, KeySpec spec) {
    auto made = world.Run(world.keys->Create(by, std::move(spec)));
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return made ? *std::move(made) : NewKey{};
  }
  Code Refused(const Scope& by, KeySpec spec) {
    auto made = world.Run(world.keys->Create(by, std::move(spec)));
    EXPECT_FALSE(made);
    return made ? Code::kInternal : made.error().code;
  }
  Scope ScopeOf(const NewKey& made) {
    auto who = world.Run(world.keys->Identify(made.secret));
    EXPECT_TRUE(who);
    return who ? As(who->principal) : Scope{};
  }

  World world;
};

TEST_F(KeysTest, AKeyIsMadeAndStaysOverARestart) {
  NewKey made = Make(First(), {.name = "ci", .role = KeyRole::kViewer});
  EXPECT_TRUE(made.key.id.starts_with("key_"));
  EXPECT_TRUE(made.secret.starts_with("sbk_"));
  EXPECT_EQ(made.key.made_by, First().caller.key_id);
  ASSERT_TRUE(world.Restart());
  auto who = world.Run(world.keys->Identify(made.secret));
  ASSERT_TRUE(who);
  EXPECT_EQ(who->principal.key_id, made.key.id);
  EXPECT_EQ(who->principal.name, "ci");
  EXPECT_EQ(who->principal.role, KeyRole::kViewer);
  EXPECT_EQ(who->principal.team, "team_a");
  EXPECT_EQ(who->principal.project, "prj_a");
  EXPECT_EQ(world.keys->Find(made.key.id)->principal.name, "ci");
  EXPECT_TRUE(world.keys->Knows(made.secret));
  EXPECT_FALSE(world.keys->Knows(made.secret + "x"));
  // The store has the hash and nothing of the secret.
  auto rows = *world.OpenStore()->AllKeys();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows.at(1).sha256_hex, crypto::Sha256Hex(made.secret));
}

TEST_F(KeysTest, NoKeyMakesOneWithMoreThanItHas) {
  const Scope first = First();
  NewKey made = Make(first, {.name = "admin of a", .role = KeyRole::kAdmin, .expires_in_ms = 60'000});
  const Scope bound = ScopeOf(made);
  EXPECT_EQ(Refused(bound, {.name = "x", .project = "*"}), Code::kForbidden);
  EXPECT_EQ(Refused(bound, {.name = "x", .project = "prj_b"}), Code::kForbidden);
  EXPECT_EQ(Refused(bound, {.name = "x", .expires_in_ms = 3'600'000}), Code::kForbidden);
  EXPECT_EQ(Make(bound, {.name = "x"}).key.expires_at, made.key.expires_at) << "as long as the one that made it";
  EXPECT_LE(*Make(bound, {.name = "x", .expires_in_ms = 1000}).key.expires_at, *made.key.expires_at);
  Scope lesser = first;
  lesser.caller.role = KeyRole::kOperator;
  EXPECT_EQ(Refused(lesser, {.name = "x", .role = KeyRole::kAdmin}), Code::kForbidden);
  EXPECT_EQ(Refused(first, {.name = "x", .expires_in_ms = -5}), Code::kBadRequest);
  EXPECT_EQ(Make(first, {.name = "all", .project = "*"}).key.project, "*");
}

TEST_F(KeysTest, ARevokedKeyIsOfNoUseAndSaysSoToThoseThatWait) {
  NewKey made = Make(First(), {.name = "ci", .role = KeyRole::kAdmin});
  auto who = world.Run(world.keys->Identify(made.secret));
  ASSERT_TRUE(who);
  const Scope own = As(who->principal);
  bool woken = false;
  asio::co_spawn(world.ioc, who->life->Wait(std::nullopt),
                 [&woken](std::exception_ptr, const Result<>& r) { woken = r.has_value(); });
  auto revoked = world.Run(world.keys->Revoke(First(), made.key.id));
  ASSERT_TRUE(revoked);
  ASSERT_TRUE(revoked->revoked_at);
  EXPECT_TRUE(world.Until([&] { return woken; }));
  EXPECT_TRUE(who->life->revoked());
  EXPECT_EQ(world.Run(world.keys->Identify(made.secret)).error().code, Code::kUnauthenticated);
  EXPECT_EQ(world.keys->Find(made.key.id).error().code, Code::kUnauthenticated);
  EXPECT_EQ(Refused(own, {.name = "x"}), Code::kUnauthenticated) << "a call that was under way";
  EXPECT_TRUE(world.keys->Knows(made.secret)) << "still nobody else's to see";
  auto again = world.Run(world.keys->Revoke(First(), made.key.id));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->revoked_at, revoked->revoked_at) << "nothing changes";
  ASSERT_TRUE(world.Restart());
  EXPECT_EQ(world.Run(world.keys->Identify(made.secret)).error().code, Code::kUnauthenticated);
}

TEST_F(KeysTest, AnExpiredKeyIsRefused) {
  NewKey made = Make(First(), {.name = "ci", .expires_in_ms = 50});
  EXPECT_TRUE(world.Until([&] { return NowMs() >= *made.key.expires_at; }));
  auto who = world.Run(world.keys->Identify(made.secret));
  ASSERT_FALSE(who);
  EXPECT_EQ(who.error().code, Code::kUnauthenticated);
}

TEST_F(KeysTest, KeysOfAnotherProjectAreUnknown) {
  const Scope first = First();
  NewKey a = Make(first, {.name = "a", .role = KeyRole::kAdmin});
  NewKey b = Make(first, {.name = "b", .role = KeyRole::kAdmin, .project = "prj_b"});
  NewKey all = Make(first, {.name = "all", .role = KeyRole::kAdmin, .project = "*"});
  const Scope of_a = ScopeOf(a);
  EXPECT_EQ(world.keys->List(of_a).size(), 1U);
  EXPECT_EQ(world.keys->List(ScopeOf(all)).size(), 3U) << "those of its team; the first one is of every team";
  EXPECT_EQ(world.keys->List(first).size(), 4U);
  for (const std::string& id : {b.key.id, all.key.id, first.caller.key_id, std::string("key_none")})
    EXPECT_EQ(world.Run(world.keys->Revoke(of_a, id)).error().code, Code::kNotFound);
  EXPECT_TRUE(world.Run(world.keys->Identify(b.secret)));
}

TEST_F(KeysTest, TheLastUseIsKeptToTheHour) {
  NewKey made = Make(First(), {.name = "ci"});
  EXPECT_FALSE(made.key.last_used_at);
  ASSERT_TRUE(world.Run(world.keys->Identify(made.secret)));
  auto own = world.OpenStore();
  EXPECT_TRUE(world.Until([&] { return own->AllKeys()->at(1).last_used_at.has_value(); }));
  EXPECT_EQ(*own->AllKeys()->at(1).last_used_at % KeysImpl::kUseGrainMs, 0);
}

TEST_F(KeysTest, AnotherFirstKeyIsMadeWhenItsFileIsGone) {
  const std::string before = First().caller.key_id;
  std::filesystem::remove(world.config.data_dir + "/token");
  ASSERT_TRUE(world.Restart());
  const std::string after = First().caller.key_id;
  EXPECT_NE(after, before);
  std::ifstream in(world.config.data_dir + "/token.id");
  std::string id;
  std::getline(in, id);
  EXPECT_EQ(id, after);
  EXPECT_TRUE(world.keys->Find(before)) << "until it is revoked";
}

TEST_F(KeysTest, ARotatedKeyIsReplacedByOneWithTheSameRights) {
  const Scope first = First();
  NewKey made = Make(first, {.name = "ci", .role = KeyRole::kViewer, .project = "prj_b", .expires_in_ms = 60'000});
  auto before = world.Run(world.keys->Identify(made.secret));
  ASSERT_TRUE(before);
  auto rotated = world.Run(world.keys->Rotate(first, made.key.id));
  ASSERT_TRUE(rotated);
  EXPECT_NE(rotated->key.id, made.key.id) << "JWTs of the former one must not go on";
  EXPECT_NE(rotated->secret, made.secret);
  EXPECT_EQ(rotated->key.name + rotated->key.team + rotated->key.project, "citeam_aprj_b");
  EXPECT_EQ(rotated->key.role, KeyRole::kViewer);
  EXPECT_EQ(rotated->key.expires_at, made.key.expires_at);
  EXPECT_EQ(rotated->key.made_by, first.caller.key_id);
  EXPECT_TRUE(before->life->revoked());
  EXPECT_EQ(world.Run(world.keys->Identify(made.secret)).error().code, Code::kUnauthenticated);
  EXPECT_EQ(world.Run(world.keys->Identify(rotated->secret))->principal.key_id, rotated->key.id);
  EXPECT_EQ(world.Run(world.keys->Rotate(first, made.key.id)).error().code, Code::kConflict);
  EXPECT_EQ(world.Run(world.keys->Rotate(first, "key_none")).error().code, Code::kNotFound);
  NewKey bound = Make(first, {.name = "admin", .role = KeyRole::kAdmin, .expires_in_ms = 30'000});
  EXPECT_EQ(world.Run(world.keys->Rotate(ScopeOf(bound), rotated->key.id)).error().code, Code::kNotFound) << "prj_b's";
  NewKey lasting = Make(first, {.name = "lasting"});
  EXPECT_EQ(world.Run(world.keys->Rotate(ScopeOf(bound), lasting.key.id)).error().code, Code::kForbidden)
      << "the secret of a key that lives longer than the caller's";
  EXPECT_TRUE(world.Run(world.keys->Identify(lasting.secret)));
  auto own = world.Run(world.keys->Rotate(ScopeOf(bound), bound.key.id));
  ASSERT_TRUE(own) << "its own";
  ASSERT_TRUE(world.Restart());
  EXPECT_TRUE(world.Run(world.keys->Identify(own->secret)));
  EXPECT_FALSE(world.Run(world.keys->Identify(bound.secret)));
}

TEST_F(KeysTest, TheFirstKeyIsRotatedWithItsFiles) {
  const std::string before = First().caller.key_id;
  auto rotated = world.Run(world.keys->Rotate(First(), before));
  ASSERT_TRUE(rotated);
  EXPECT_EQ(First().caller.key_id, rotated->key.id) << "the file has the new secret";
  EXPECT_EQ(rotated->key.team + rotated->key.project, "**");
  EXPECT_EQ(world.keys->Find("").error().code, Code::kUnauthenticated) << "JWTs that name no key were the former one's";
  auto again = world.Run(world.keys->Rotate(First(), rotated->key.id));
  ASSERT_TRUE(again);
  ASSERT_TRUE(world.Restart());
  EXPECT_EQ(First().caller.key_id, again->key.id);
  EXPECT_FALSE(world.keys->Find(before));
}

TEST_F(KeysTest, SomethingMadeForAKeyCanDoNoMoreThanBoth) {
  const Scope first = First();
  NewKey made = Make(first, {.name = "ci", .role = KeyRole::kOperator, .expires_in_ms = 60'000});
  Principal then = ScopeOf(made).caller;
  auto same = world.keys->Recall(then);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->principal.role, KeyRole::kOperator);
  EXPECT_TRUE(same->principal.derived);
  EXPECT_EQ(same->ends_at_ms, made.key.expires_at);
  then.role = KeyRole::kAdmin;
  then.expires_at_ms = *made.key.expires_at + 60'000;
  EXPECT_EQ(world.keys->Recall(then)->principal.role, KeyRole::kOperator);
  EXPECT_EQ(world.keys->Recall(then)->ends_at_ms, made.key.expires_at);
  then.role = KeyRole::kViewer;
  then.expires_at_ms = *made.key.expires_at - 1000;
  EXPECT_EQ(world.keys->Recall(then)->principal.role, KeyRole::kViewer);
  EXPECT_EQ(world.keys->Recall(then)->principal.expires_at_ms, then.expires_at_ms);
  Principal elsewhere = then;
  elsewhere.project = "prj_b";
  EXPECT_EQ(world.keys->Recall(elsewhere).error().code, Code::kUnauthenticated);
  elsewhere.project = "*";
  EXPECT_EQ(world.keys->Recall(elsewhere).error().code, Code::kUnauthenticated);
  Principal late = then;
  late.expires_at_ms = NowMs() - 1;
  EXPECT_EQ(world.keys->Recall(late).error().code, Code::kUnauthenticated);
  ASSERT_TRUE(world.Run(world.keys->Revoke(first, made.key.id)));
  EXPECT_EQ(world.keys->Recall(then).error().code, Code::kUnauthenticated);
  // A JWT of a release that named no key.
  auto former = world.keys->Recall({.role = KeyRole::kOperator, .team = "team_x", .project = "prj_x"});
  ASSERT_TRUE(former);
  EXPECT_EQ(former->principal.key_id, first.caller.key_id);
  EXPECT_EQ(former->principal.role, KeyRole::kOperator);
  EXPECT_EQ(former->principal.project, "prj_x");
}

TEST_F(KeysTest, AKeyOfALoginEndsWithTheKeyThatApprovedIt) {
  const Scope first = First();
  for (const bool rotate : {false, true}) {
    NewKey approver = Make(first, {.name = "person", .role = KeyRole::kOperator});
    NewKey login = Make(ScopeOf(approver), {.name = "login", .role = KeyRole::kOperator, .login = true});
    EXPECT_EQ(Refused(ScopeOf(login), {.name = "approved by the login", .login = true}), Code::kForbidden);
    NewKey other = Make(ScopeOf(approver), {.name = "no login"});
    if (rotate) {
      ASSERT_TRUE(world.Run(world.keys->Rotate(first, approver.key.id)));
    } else {
      ASSERT_TRUE(world.Run(world.keys->Revoke(first, approver.key.id)));
    }
    EXPECT_FALSE(world.Run(world.keys->Identify(login.secret)));
    EXPECT_TRUE(world.Run(world.keys->Identify(other.secret)));
    ASSERT_TRUE(world.Restart());
    EXPECT_FALSE(world.Run(world.keys->Identify(login.secret)));
    EXPECT_TRUE(world.Run(world.keys->Identify(other.secret)));
  }
}

TEST_F(KeysTest, OneKeyCannotUseUpAllLogins) {
  NewKey approver = Make(First(), {.name = "person", .role = KeyRole::kOperator});
  for (size_t i = 0; i < KeysImpl::kMaxLoginsOfKey; ++i) Make(ScopeOf(approver), {.name = "login", .login = true});
  EXPECT_EQ(Refused(ScopeOf(approver), {.name = "one more", .login = true}), Code::kQuota);
  NewKey other = Make(First(), {.name = "another person", .role = KeyRole::kOperator});
  Make(ScopeOf(other), {.name = "login", .login = true});
}

TEST_F(KeysTest, ALoginThatIsApprovedWhileItsApproverIsRevokedGetsNothing) {
  const Scope first = First();
  NewKey approver = Make(first, {.name = "person", .role = KeyRole::kOperator});
  const Scope scope = ScopeOf(approver);
  bool revoked = false;
  asio::co_spawn(world.ioc, world.keys->Revoke(first, approver.key.id),
                 [&revoked](std::exception_ptr, const Result<store::Key>& r) { revoked = r.has_value(); });
  EXPECT_EQ(Refused(scope, {.name = "login", .login = true}), Code::kUnauthenticated);
  EXPECT_TRUE(world.Until([&] { return revoked; }));
  for (const store::Key& key : world.keys->List(first)) EXPECT_TRUE(key.ends_with.empty() || key.revoked_at) << key.id;
}

TEST_F(KeysTest, RecordsOfEndedKeysAreBoundedAndTheFirstKeyIsNeverForgotten) {
  ASSERT_TRUE(world.Run(world.keys->Revoke(First(), First().caller.key_id)));
  std::filesystem::remove(world.config.data_dir + "/token");
  auto own = world.OpenStore();
  for (size_t i = 0; i < KeysImpl::kMaxEnded + 5; ++i) {
    store::Key key{.id = "key_" + std::to_string(i), .sha256_hex = crypto::Sha256Hex(std::to_string(i)), .name = "old"};
    key.created_at = key.revoked_at.emplace(static_cast<int64_t>(i));
    key.made_by = "key_x";
    ASSERT_TRUE(own->InsertKey(key));
  }
  ASSERT_TRUE(world.Restart());
  EXPECT_TRUE(world.keys->Knows("0"));
  NewKey made = Make(First(), {.name = "new"});
  auto rows = *own->AllKeys();
  EXPECT_EQ(rows.size(), KeysImpl::kMaxEnded - 1 + 3) << "with the two first keys and the new one";
  EXPECT_FALSE(world.keys->Knows("0"));
  EXPECT_FALSE(world.keys->Knows("5"));
  EXPECT_TRUE(world.keys->Knows("6"));
  EXPECT_EQ(std::ranges::count(rows, "server", &store::Key::made_by), 2) << "the revoked one too";
  EXPECT_TRUE(world.Run(world.keys->Identify(made.secret)));
}

}  // namespace
}  // namespace sandbar::sandbox
