#include "sandbox/sandboxes/sealed_settings.h"

#include "base/log.h"
#include "sandbox/seals.h"
#include "sandbox/sessions/network.h"

namespace sandbar::sandbox {

std::map<std::string, std::string> OpenEnv(const Core& core, const store::Sandbox& sandbox) {
  auto env = core.vault.OpenEnv(sandbox.env, SealOwner(sandbox));
  if (env) return *std::move(env);
  log::Error("sandbox {}: its variables are lost: {}", sandbox.name, env.error().message);
  return {};
}

Result<egress::PolicyRef> PolicyOf(const Core& core, const store::Sandbox& sandbox) {
  if (!sandbox.network) return egress::PolicyRef{};
  return OpenPolicy(core.vault, *sandbox.network, SealOwner(sandbox));
}

Task<egress::PolicyRef> PolicyToStartWith(Core* core, store::Sandbox sandbox) {
  auto policy = PolicyOf(*core, sandbox);
  if (policy) co_return policy;
  log::Error("sandbox {}: its network policy cannot be used, nothing is allowed until it is set again: {}",
             sandbox.name, policy.error().message);
  auto notice = PolicyUnusable(store::KeyOf(sandbox), policy.error().message);
  auto add = [notice = std::move(notice)](store::Journal& journal) { return journal.AddNotice(notice); };
  SB_CO_TRYV(co_await core->Journal(std::move(add)));
  co_return egress::DenyAll();
}

}  // namespace sandbar::sandbox
