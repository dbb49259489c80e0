// A machine's certificate authority for TLS that the egress proxy ends: its key comes from the machine's seed and stays
// in this process; leaf certificates are made as names are asked for. Single loop.
//
//   SB_TRY(auto ca, MachineCa::Make(seed));
//   install(ca->CertificateFor(*policy));            // name-constrained to the policy's ruled domains
//   SB_TRY(SSL_CTX* context, ca->Leaf("api.example"));   // a server's context for that name, HTTP/1.1 only
#pragma once

#include <openssl/types.h>

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "egress/policy.h"

namespace sandbar::egress {

class MachineCa {
 public:
  static Result<std::unique_ptr<MachineCa>> Make(std::string_view seed);
  MachineCa(const MachineCa&) = delete;
  MachineCa& operator=(const MachineCa&) = delete;
  ~MachineCa();

  std::string CertificateFor(const CompiledPolicy& policy) const;
  // Valid until the next call; a stream made from it keeps what it needs.
  Result<SSL_CTX*> Leaf(const std::string& name);
  size_t cached() const { return leaves_.size(); }

 private:
  struct CachedLeaf;
  using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
  using Certificate = std::unique_ptr<X509, void (*)(X509*)>;
  using Leaves = std::list<CachedLeaf>;

  MachineCa(Key key, Key leaf_key, Certificate issuer);
  Result<CachedLeaf> MakeLeaf(const std::string& name) const;

  Key key_;
  Certificate issuer_;  // only its name and key identifier are used, the same in every certificate of this CA
  Key leaf_key_;        // one for all names: what is worth something is the CA's
  Leaves leaves_;       // the last used first
  std::unordered_map<std::string, Leaves::iterator> by_name_;
};

// What the CA may sign for: DNS suffixes that cover the policy's ruled domains, sorted; empty optional: anything.
std::optional<std::vector<std::string>> ConstrainedNames(const CompiledPolicy& policy);

}  // namespace sandbar::egress
