// Encrypts secrets for the database: AES-256-GCM under a key that lies in a file of its own, never in the database.
// A sealed text is bound to its owner (a row's identity), so it cannot be moved to another row. Any thread.
//
//   Vault vault(secret);
//   std::string kept = vault.Seal(text, "session/" + id);
//   SB_TRY(std::string text, vault.Open(kept, "session/" + id));    // kIo: damaged, another key, another owner
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbar::sandbox {

class Vault {
 public:
  explicit Vault(std::string_view secret);                                // at least 32 bytes
  std::string Seal(std::string_view text, std::string_view owner) const;  // base64
  Result<std::string> Open(std::string_view sealed, std::string_view owner) const;
  // 32 bytes for another use of the same secret; one use's bytes say nothing about another's.
  std::string Derive(std::string_view use) const;

  // Variables as the record keeps them: one entry with an empty name, which no variable can have. What was recorded
  // before there was a vault passes as it is.
  std::map<std::string, std::string> SealEnv(const std::map<std::string, std::string>& env,
                                             std::string_view owner) const;
  Result<std::map<std::string, std::string>> OpenEnv(const std::map<std::string, std::string>& kept,
                                                     std::string_view owner) const;

 private:
  std::string secret_;
  std::string key_;
};

}  // namespace sandbar::sandbox
