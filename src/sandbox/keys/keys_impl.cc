#include "sandbox/keys/keys_impl.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ids.h"
#include "crypto/digest.h"
#include "sandbox/keys/first_key.h"
#include "sandbox/records.h"

namespace sandbar::sandbox {
namespace {

constexpr size_t kLongestSecret = 512;
constexpr size_t kHashHead = 16;  // hexadecimal digits
constexpr std::string_view kServer = "server";

std::unexpected<Error> Unknown() {
  return Fail(Code::kUnauthenticated, "the token is not valid");
}

std::unexpected<Error> NoKey() {
  return Fail(Code::kNotFound, "there is no such key");
}

bool Expired(const store::Key& key, int64_t now) {
  return key.expires_at && *key.expires_at <= now;
}

bool Ended(const store::Key& key, int64_t now) {
  return key.revoked_at || Expired(key, now);
}

// The caller must not get a key that lives longer than the caller's own.
Result<> CheckNewLife(const Principal& caller, std::optional<int64_t> expires_at, int64_t now) {
  if (!caller.expires_at_ms || (expires_at && *expires_at <= *caller.expires_at_ms)) return {};
  return Fail(Code::kForbidden,
              fmt::format("`expiresIn`: the key {} ends in {} ms, and the new one must not live longer", caller.name,
                          std::max<int64_t>(*caller.expires_at_ms - now, 0)));
}

Result<> CheckNewRole(const Principal& caller, KeyRole role) {
  if (May(caller, role)) return {};
  return Fail(Code::kForbidden, fmt::format("`role`: the key {} is {} and cannot make one that is {}", caller.name,
                                            KeyRoleName(caller.role), KeyRoleName(role)));
}

// The key that `spec` asks for, at most with what the caller's has; `now` is when it is made.
Result<store::Key> Derive(const Scope& scope, const KeySpec& spec, int64_t now) {
  const Principal& caller = scope.caller;
  store::Key key;
  key.name = spec.name;
  key.role = spec.role;
  SB_TRYV(CheckNewRole(caller, spec.role));
  key.team = scope.team;
  key.project = spec.project.empty() ? scope.project : spec.project;
  if (!scope.any_project && key.project != scope.project)
    return Fail(Code::kForbidden, fmt::format("`project`: the key {} belongs to {} and cannot make one for {}",
                                              caller.name, scope.project, key.project));
  key.expires_at = caller.expires_at_ms;
  if (spec.expires_in_ms) {
    if (*spec.expires_in_ms < 1 || *spec.expires_in_ms > kMaxKeyLifeMs)
      return Fail(Code::kBadRequest, "`expiresIn`: must be between 1 millisecond and 10 years");
    key.expires_at = now + *spec.expires_in_ms;
  }
  SB_TRYV(CheckNewLife(caller, key.expires_at, now));
  key.created_at = now;
  key.made_by = caller.key_id.empty() ? kServer : caller.key_id;
  if (spec.login) key.ends_with = caller.key_id;
  return key;
}

NewKey WithNewSecret(store::Key key) {
  NewKey made{std::move(key), NewSecret("sbk_")};
  made.key.id = NewId("key_");
  made.key.sha256_hex = crypto::Sha256Hex(made.secret);
  return made;
}

store::KeyEdit RevokeAt(int64_t now) {
  return [now](store::Key& key) -> Result<> {
    if (!key.revoked_at) key.revoked_at = now;
    return {};
  };
}

Result<> RefuseRevoked(store::Key& key) {
  if (key.revoked_at) return Fail(Code::kConflict, "the key was revoked meanwhile; make another one");
  return {};
}

// On the store's thread, so that nothing comes between the steps. The former key goes last: a crash never leaves the
// server without a key that somebody knows.
Result<> Replace(store::Store& store, const std::string& former, const NewKey& made, const std::string& first_key_dir) {
  SB_TRYV(store.EditKey(former, RefuseRevoked));
  SB_TRYV(store.InsertKey(made.key));
  if (!first_key_dir.empty()) {
    auto written = WriteFirstKey(first_key_dir, made.secret, made.key.id);
    if (!written) {
      SB_TRYV(store.ForgetKey(made.key.id));
      return written;
    }
  }
  SB_TRYV(store.EditKey(former, RevokeAt(made.key.created_at)));
  return {};
}

}  // namespace

Task<> KeysImpl::Load() {
  struct Loaded {
    std::string first;
    std::vector<store::Key> keys;
  };
  auto load = [dir = core_->config.data_dir](store::Store& store) -> Result<Loaded> {
    Loaded out;
    SB_TRY(out.first, EnsureFirstKey(store, dir));
    SB_TRY(out.keys, store.AllKeys());
    return out;
  };
  SB_CO_TRY(Loaded loaded, co_await core_->Combined(std::move(load)));
  for (store::Key& key : loaded.keys) Add(std::move(key));
  first_ = std::move(loaded.first);
  for (Entry& entry : entries_) {
    if (entry.key.revoked_at || entry.key.ends_with.empty()) continue;
    // The record of an ended key may have been removed.
    const Entry* approver = FindEntry(entry.key.ends_with);
    if (approver == nullptr || approver->key.revoked_at) entry.End(entry.key.created_at);
  }
  co_return Result<>{};
}

void KeysImpl::Add(store::Key key) {
  auto life = std::make_shared<KeyLife>();
  if (key.revoked_at) life->Revoke();
  auto place = entries_.insert(entries_.end(), Entry{std::move(key), std::move(life)});
  by_id_.emplace(place->key.id, place);
  by_hash_head_.emplace(place->key.sha256_hex.substr(0, kHashHead), place);
}

Result<> KeysImpl::AddMade(const store::Key& key) {
  Add(key);
  if (key.ends_with.empty()) return {};
  const Entry* approver = FindEntry(key.ends_with);
  if (approver != nullptr && !approver->key.revoked_at) return {};
  RevokeLoginsOf(key.ends_with, NowMs());
  return Fail(Code::kUnauthenticated, "the key that approved this login was revoked meanwhile");
}

KeysImpl::Entry* KeysImpl::FindEntry(std::string_view id) {
  auto found = by_id_.find(std::string(id));
  return found == by_id_.end() ? nullptr : &*found->second;
}

KeysImpl::Entry* KeysImpl::Managed(const Scope& scope, std::string_view id) {
  Entry* entry = FindEntry(id);
  return entry != nullptr && Records::Includes(scope, entry->key) ? entry : nullptr;
}

// The head of the hash finds the key, and all of it is compared in constant time. The time of the first step can only
// tell something about a hash, from which nobody gets to the secret.
const KeysImpl::Entry* KeysImpl::WithSecret(std::string_view secret) const {
  if (secret.size() > kLongestSecret) return nullptr;
  const std::string digest = crypto::Sha256Hex(secret);
  const Entry* found = nullptr;
  auto [begin, end] = by_hash_head_.equal_range(digest.substr(0, kHashHead));
  for (auto it = begin; it != end; ++it) {
    if (crypto::SameSecret(it->second->key.sha256_hex, digest)) found = &*it->second;
  }
  return found;
}

Task<> KeysImpl::WriteUse(std::string id, int64_t at) {
  store::KeyEdit use = [at](store::Key& key) -> Result<> {
    key.last_used_at = at;
    return {};
  };
  SB_CO_TRYV(co_await core_->directory->EditKey(std::move(id), std::move(use)));
  co_return Result<>{};
}

Result<Identity> KeysImpl::InForce(Entry* entry) {
  const int64_t now = NowMs();
  store::Key& key = entry->key;
  if (key.revoked_at) return Fail(Code::kUnauthenticated, "the key of this token was revoked");
  if (Expired(key, now)) return Fail(Code::kUnauthenticated, "the key of this token has expired");
  const int64_t hour = now - now % kUseGrainMs;
  if (key.last_used_at.value_or(0) < hour && !core_->closing) {
    key.last_used_at = hour;
    core_->tasks.Spawn(WriteUse(key.id, hour));
  }
  Identity who;
  who.principal = {key.id, key.name, key.role, key.team, key.project, key.expires_at, false};
  who.ends_at_ms = key.expires_at;
  who.life = entry->life;
  return who;
}

Task<Identity> KeysImpl::Identify(std::string secret) {
  const Entry* found = WithSecret(secret);
  if (found == nullptr) co_return Unknown();
  co_return InForce(FindEntry(found->key.id));
}

Result<Identity> KeysImpl::Find(std::string_view id) {
  if (!id.empty()) {
    Entry* entry = FindEntry(id);
    if (entry == nullptr) return Unknown();
    return InForce(entry);
  }
  auto oldest = std::ranges::find_if(entries_, [](const Entry& entry) { return entry.key.made_by == kServer; });
  if (oldest == entries_.end()) return Unknown();
  return InForce(&*oldest);
}

bool KeysImpl::Knows(std::string_view secret) const {
  return WithSecret(secret) != nullptr;
}

Result<> KeysImpl::CheckNewLogin(const Principal& caller, int64_t now) const {
  size_t all = 0, own = 0;
  for (const Entry& entry : entries_) {
    const store::Key& key = entry.key;
    if (key.id == caller.key_id && !key.ends_with.empty())
      return Fail(Code::kForbidden, fmt::format("the key {} comes from a login and cannot approve another one: use a "
                                                "key that an admin made",
                                                caller.name));
    if (key.ends_with.empty() || Ended(key, now)) continue;
    ++all;
    if (key.ends_with == caller.key_id) ++own;
  }
  if (all < kMaxLogins && own < kMaxLoginsOfKey) return {};
  return Fail(Code::kQuota, fmt::format("{} logins are in force, {} of them approved with the key {}; more are not "
                                        "possible: revoke some",
                                        all, own, caller.name));
}

Task<NewKey> KeysImpl::Create(Scope scope, KeySpec spec) {
  const int64_t now = NowMs();
  // The caller's key may have ended since the call began.
  SB_CO_TRYV(Recall(scope.caller));
  SB_CO_TRY(store::Key key, Derive(scope, spec, now));
  const auto in_force = std::ranges::count_if(entries_, [now](const Entry& entry) { return !Ended(entry.key, now); });
  if (std::cmp_greater_equal(in_force, kMaxInForce))
    co_return Fail(Code::kQuota, fmt::format("{} keys are in force, more are not possible: revoke some", in_force));
  if (spec.login) {
    SB_CO_TRYV(CheckNewLogin(scope.caller, now));
  }
  SB_CO_TRYV(co_await ForgetOldest());
  NewKey made = WithNewSecret(std::move(key));
  SB_CO_TRYV(co_await core_->directory->InsertKey(made.key));
  SB_CO_TRYV(AddMade(made.key));
  co_return made;
}

Task<> KeysImpl::ForgetOldest() {
  const int64_t now = NowMs();
  auto forgettable = [now](const Entry& entry) { return Ended(entry.key, now) && entry.key.made_by != kServer; };
  while (std::cmp_greater_equal(std::ranges::count_if(entries_, forgettable), kMaxEnded)) {
    auto oldest = std::ranges::find_if(entries_, forgettable);
    const std::string id = oldest->key.id;
    auto [begin, end] = by_hash_head_.equal_range(oldest->key.sha256_hex.substr(0, kHashHead));
    by_hash_head_.erase(std::find_if(begin, end, [oldest](const auto& item) { return item.second == oldest; }));
    by_id_.erase(id);
    entries_.erase(oldest);
    SB_CO_TRYV(co_await core_->directory->ForgetKey(id));
  }
  co_return Result<>{};
}

Task<NewKey> KeysImpl::Rotate(Scope scope, std::string id) {
  const int64_t now = NowMs();
  SB_CO_TRYV(Recall(scope.caller));
  const Entry* entry = Managed(scope, id);
  if (entry == nullptr) co_return NoKey();
  if (Ended(entry->key, now)) co_return Fail(Code::kConflict, "the key has ended; make another one");
  SB_CO_TRYV(CheckNewRole(scope.caller, entry->key.role));
  SB_CO_TRYV(CheckNewLife(scope.caller, entry->key.expires_at, now));
  store::Key key = entry->key;
  key.created_at = now;
  key.last_used_at.reset();
  const bool first = id == first_;
  if (!first) key.made_by = scope.caller.key_id.empty() ? kServer : scope.caller.key_id;
  SB_CO_TRYV(co_await ForgetOldest());
  NewKey made = WithNewSecret(std::move(key));
  auto replace = [id, made, dir = first ? core_->config.data_dir : ""](store::Store& store) {
    return Replace(store, id, made, dir);
  };
  SB_CO_TRYV(co_await core_->Combined(std::move(replace)));
  if (first) first_ = made.key.id;
  SB_CO_TRYV(AddMade(made.key));
  if (Entry* former = FindEntry(id)) {
    former->End(now);
    RevokeLoginsOf(id, now);
  }
  co_return made;
}

std::vector<store::Key> KeysImpl::List(const Scope& scope) const {
  std::vector<store::Key> out;
  for (const Entry& entry : entries_)
    if (Records::Includes(scope, entry.key)) out.push_back(entry.key);
  std::ranges::reverse(out);
  return out;
}

Task<store::Key> KeysImpl::Revoke(Scope scope, std::string id) {
  const Entry* entry = Managed(scope, id);
  if (entry == nullptr) co_return NoKey();
  if (entry->key.revoked_at) co_return entry->key;
  co_return co_await RevokeEntry(std::move(id));
}

void KeysImpl::RevokeLoginsOf(const std::string& id, int64_t at) {
  for (Entry& entry : entries_) {
    if (entry.key.ends_with == id && !entry.key.revoked_at) entry.End(at);
  }
}

Task<> KeysImpl::Logout(std::string secret) {
  const Entry* entry = WithSecret(secret);
  if (entry == nullptr || entry->key.ends_with.empty() || entry->key.revoked_at) co_return Result<>{};
  std::string id = entry->key.id;
  auto revoked = co_await RevokeEntry(std::move(id));
  if (!revoked) co_return std::unexpected(std::move(revoked).error());
  co_return Result<>{};
}

Task<store::Key> KeysImpl::RevokeEntry(std::string id) {
  const int64_t now = NowMs();
  SB_CO_TRY(store::Key revoked, co_await core_->directory->EditKey(id, RevokeAt(now)));
  // An expired key may have been forgotten meanwhile.
  Entry* entry = FindEntry(id);
  if (entry == nullptr) co_return revoked;
  entry->End(revoked.revoked_at.value_or(now));
  RevokeLoginsOf(id, now);
  co_return entry->key;
}

}  // namespace sandbar::sandbox
