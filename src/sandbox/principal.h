// Who caused a call: the key, as it was when the call began. Plain value, any thread.
//
//   scope.caller.key_id    // for a record, an event or a line of the audit log that names its cause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "store/record_values.h"

namespace sandbar::sandbox {

using store::KeyRole;

struct Principal {
  std::string key_id;  // empty: the server itself
  std::string name;    // of the key; for people
  KeyRole role = KeyRole::kViewer;
  std::string team, project;             // that the credential is bound to; "*": any
  std::optional<int64_t> expires_at_ms;  // nothing that is made for the caller may live longer
  bool derived = false;  // the caller showed something that was made for the key (a JWT, a ticket), not the secret
};

// The principal may do what needs this role.
inline bool May(const Principal& principal, KeyRole needed) {
  return principal.role >= needed;
}
// kForbidden when it may not, with a message that names the key, what it may do and what is needed.
Result<> CheckRole(const Principal& caller, KeyRole needed);

}  // namespace sandbar::sandbox
