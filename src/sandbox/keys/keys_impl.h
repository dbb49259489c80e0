// The role Keys over the directory. All keys are in memory: every call needs one. Single loop; owned by the domain.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sandbox/core.h"
#include "sandbox/keys/keys.h"

namespace sandbar::sandbox {

class KeysImpl final : public Keys {
 public:
  static constexpr size_t kMaxInForce = 1000;
  static constexpr size_t kMaxLogins = 500;      // of those: operators approve logins, and must leave room for admins
  static constexpr size_t kMaxLoginsOfKey = 50;  // that one key approved
  static constexpr size_t kMaxEnded = 1000;      // beyond that, the records of those that were made first are removed
  static constexpr int64_t kUseGrainMs = 3'600'000;  // of last_used_at: one write an hour at most

  explicit KeysImpl(Core* core) : core_(core) {}

  // At start: reads the keys, and makes the first one.
  Task<> Load();

  Task<Identity> Identify(std::string secret) override;
  Result<Identity> Find(std::string_view id) override;
  bool Knows(std::string_view secret) const override;
  Task<NewKey> Create(Scope scope, KeySpec spec) override;
  Task<NewKey> Rotate(Scope scope, std::string id) override;
  std::vector<store::Key> List(const Scope& scope) const override;
  Task<store::Key> Revoke(Scope scope, std::string id) override;
  Task<> Logout(std::string secret) override;

 private:
  struct Entry {
    store::Key key;
    std::shared_ptr<KeyLife> life;
    void End(int64_t at) {
      key.revoked_at = at;
      life->Revoke();
    }
  };

  void Add(store::Key key);
  // Adds a key that the store has got just now. kUnauthenticated, and the key is revoked, when it is of a login whose
  // approver's key was revoked while the store wrote.
  Result<> AddMade(const store::Key& key);
  Entry* FindEntry(std::string_view id);
  // The entry with this id if the scope may manage its key, or null.
  Entry* Managed(const Scope& scope, std::string_view id);
  const Entry* WithSecret(std::string_view secret) const;
  // The identity of a key that is in force; notes that it is used.
  Result<Identity> InForce(Entry* entry);
  // kForbidden or kQuota when the caller cannot approve one more login.
  Result<> CheckNewLogin(const Principal& caller, int64_t now) const;
  Task<store::Key> RevokeEntry(std::string id);
  // The keys of logins that this key approved are revoked with it. Their rows do not say so: a start finds out again.
  void RevokeLoginsOf(const std::string& id, int64_t at);
  Task<> WriteUse(std::string id, int64_t at);
  // Removes the records of the oldest ended keys beyond kMaxEnded. Keys that the server made are kept: their secret may
  // be in the token file, and a start would put it in force again.
  Task<> ForgetOldest();

  Core* core_;
  std::list<Entry> entries_;  // oldest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_id_;
  std::unordered_multimap<std::string, std::list<Entry>::iterator> by_hash_head_;
  std::string first_;  // the id of the key in the token file
};

}  // namespace sandbar::sandbox
