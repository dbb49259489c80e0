#include "wire/sdk_variables.h"

namespace sandbar::wire {

Variables SdkVariables(const SdkSettings& settings) {
  Variables out = {{"SANDBAR_URL", settings.url}, {"SANDBAR_ALIASES", settings.aliases ? "1" : "0"}};
  if (!settings.default_net.empty()) out.emplace_back("SANDBAR_DEFAULT_NET", settings.default_net);
  out.emplace_back("VERCEL_OIDC_TOKEN", settings.token);
  out.emplace_back("VERCEL_TOKEN", settings.token);
  if (settings.aliases) out.emplace_back("VERCEL_SANDBOX_API_KEY", settings.token);
  out.emplace_back("VERCEL_TEAM_ID", settings.team);
  out.emplace_back("VERCEL_PROJECT_ID", settings.project);
  for (const char* name :
       {"VERCEL_TELEMETRY_DISABLED", "VERCEL_SANDBOX_TELEMETRY_DISABLED", "SANDBOX_SKIP_VERSION_CHECK"})
    out.emplace_back(name, "1");
  return out;
}

std::vector<std::string> SdkVariableNames() {
  SdkSettings all;
  all.default_net = "deny-all";
  std::vector<std::string> names;
  for (const auto& [name, value] : SdkVariables(all)) names.push_back(name);
  names.emplace_back("NODE_OPTIONS");
  return names;
}

}  // namespace sandbar::wire
