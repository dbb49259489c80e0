// The environment variables that point programs of the Vercel SDK at a server of ours. One list for all who write it:
// `sandbar env` for the server of this machine, and a server for other machines. Pure functions, any thread.
//
//   for (const auto& [name, value] : SdkVariables({.url = url, .token = jwt, .team = team, .project = project})) …
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sandbar::wire {

struct SdkSettings {
  std::string url, token, team, project;
  bool aliases = true;      // accept other spellings of the SDK's options
  std::string default_net;  // empty: the server's
};
using Variables = std::vector<std::pair<std::string, std::string>>;

// Without NODE_OPTIONS, to which the preload is added: its place differs from machine to machine.
Variables SdkVariables(const SdkSettings& settings);
// Every name that SdkVariables can set, and NODE_OPTIONS.
std::vector<std::string> SdkVariableNames();

}  // namespace sandbar::wire
