// Network policies between callers, records and machines: sealed for the store, opened for the egress, and the CA that
// a policy with rules needs in the machine. Free functions; the vault is the only state.
#pragma once

#include <string>
#include <string_view>

#include "egress/policy.h"
#include "engine/guest_link/guest_link.h"
#include "sandbox/vault.h"
#include "store/store.h"

namespace sandbar::sandbox {

store::NetworkPolicyRow SealPolicy(const Vault& vault, const egress::NetworkPolicy& policy, const std::string& owner);
Result<egress::PolicyRef> OpenPolicy(const Vault& vault, const store::NetworkPolicyRow& row, const std::string& owner);

// For the owner of a sandbox whose recorded policy the server cannot use: it cannot be opened, or exceeds a limit.
store::Notice PolicyUnusable(const store::SandboxKey& key, const std::string& why);

// Puts the CA into the machine's trust stores, in place of an earlier one of ours. The machine may be hostile: the
// bytes that are read from it are bounded, and are only written back.
Task<> InstallCa(std::shared_ptr<engine::GuestLink> link, std::string ca_pem);
// The bundle with our certificate at its end, and without the earlier one.
std::string MergeBundle(std::string_view bundle, std::string_view earlier_pem, const std::string& ca_pem);

}  // namespace sandbar::sandbox
