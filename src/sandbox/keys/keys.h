// The role Keys: who may call this server. The answer that makes a key shows its secret once; the store keeps the
// secret's SHA-256. Single loop.
//
//   SB_CO_TRY(Identity who, co_await keys->Identify(secret));     // a caller with the key itself
//   SB_CO_TRY(Identity who, keys->Recall(ticket.principal));      // a caller with something that was made for the key
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "async/task.h"
#include "sandbox/keys/key_life.h"
#include "sandbox/scope.h"
#include "store/records.h"

namespace sandbar::sandbox {

inline constexpr int64_t kMaxKeyLifeMs = 3650LL * 24 * 3'600'000;  // of a key that has an end

// The caller, and until when: a stream that the caller opens ends at `ends_at_ms` or when `life` is revoked.
struct Identity {
  Principal principal;
  std::optional<int64_t> ends_at_ms;  // absent: no end is known
  std::shared_ptr<KeyLife> life;      // of the key; never null
};

struct KeySpec {
  std::string name;
  KeyRole role = KeyRole::kViewer;
  std::string project;                   // "*": every project of the caller's team; empty: that of the scope
  std::optional<int64_t> expires_in_ms;  // absent: as long as the caller's key
  bool login = false;                    // of a person who logged in: it is revoked with the caller's key
};

struct NewKey {
  store::Key key;
  std::string secret;
};

class Keys {
 public:
  virtual ~Keys() = default;
  // Compares in constant time. kUnauthenticated: no key has this secret, or its key was revoked or has expired.
  virtual Task<Identity> Identify(std::string secret) = 0;
  // The key with this id, as it is now. Empty: the server's oldest key, which is the one that JWTs without a key were
  // made for. kUnauthenticated as above.
  virtual Result<Identity> Find(std::string_view id) = 0;
  // Who speaks with a JWT, a ticket or the like that was made for `then`: at most what `then` could do, and at most
  // what its key can do now. kUnauthenticated when the key or `then` has ended.
  Result<Identity> Recall(const Principal& then);
  // Whether a key has or had this secret: then nobody else may see it.
  virtual bool Knows(std::string_view secret) const = 0;

  // kForbidden when the new key would have more role, scope or life than the caller's.
  virtual Task<NewKey> Create(Scope scope, KeySpec spec) = 0;
  // A new key in place of this one, with its name, role, scope and end; the former one is revoked. kForbidden when the
  // caller's key has less role or ends before it, kConflict when it has ended already.
  virtual Task<NewKey> Rotate(Scope scope, std::string id) = 0;
  // Those of the scope's team, and of its project unless the scope has all of them. Newest first, ended ones included.
  virtual std::vector<store::Key> List(const Scope& scope) const = 0;
  // The key is of no use any more when this returns, and what it opened ends. Not an error when it was revoked before.
  virtual Task<store::Key> Revoke(Scope scope, std::string id) = 0;
  // Revokes the key with this secret if a login made it. Other keys stay: whoever has one may not end it by that alone.
  virtual Task<> Logout(std::string secret) = 0;
};

}  // namespace sandbar::sandbox
