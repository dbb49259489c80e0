// For tests: the role Keys, with the keys of a FakeState.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "support/api/fake_state.h"

namespace sandbar::api {

class FakeKeys : public sandbox::Keys {
 public:
  explicit FakeKeys(FakeState* state) : state_(state) {}
  Task<sandbox::Identity> Identify(std::string secret) override {
    auto it = state_->keys.find(secret);
    if (it == state_->keys.end()) co_return Fail(Code::kUnauthenticated, "unknown token");
    co_return Find(it->second.principal.key_id);
  }
  Result<sandbox::Identity> Find(std::string_view id) override {
    if (id.empty()) id = "key_good";
    for (const auto& [secret, who] : state_->keys) {
      if (who.principal.key_id != id) continue;
      if (who.life->revoked() || (who.ends_at_ms && *who.ends_at_ms <= NowMs()))
        return Fail(Code::kUnauthenticated, "the key has ended");
      return who;
    }
    return Fail(Code::kUnauthenticated, "unknown key");
  }
  bool Knows(std::string_view secret) const override { return state_->keys.contains(std::string(secret)); }
  Task<sandbox::NewKey> Create(sandbox::Scope scope, sandbox::KeySpec spec) override {
    state_->scope = std::move(scope);
    state_->key_spec = std::move(spec);
    state_->key.name = state_->key_spec->name;
    state_->key.role = state_->key_spec->role;
    co_return sandbox::NewKey{state_->key, "sbk_the-secret"};
  }
  Task<sandbox::NewKey> Rotate(sandbox::Scope scope, std::string id) override {
    state_->scope = std::move(scope);
    if (id != state_->key.id) co_return Fail(Code::kNotFound, "there is no such key");
    co_return sandbox::NewKey{state_->key, "sbk_another-secret"};
  }
  std::vector<store::Key> List(const sandbox::Scope&) const override { return {state_->key}; }
  Task<store::Key> Revoke(sandbox::Scope, std::string id) override {
    if (id != state_->key.id) co_return Fail(Code::kNotFound, "there is no such key");
    state_->key.revoked_at = 7;
    co_return state_->key;
  }
  Task<> Logout(std::string) override { co_return Result<>{}; }

 private:
  FakeState* state_;
};

}  // namespace sandbar::api
