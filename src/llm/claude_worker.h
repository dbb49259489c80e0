// `sandbar claude-worker`: serves a self-hosted environment of Claude's managed agents. Claude runs there, the tools
// run here: the loop and its keys stay in this process, the sandbox sees commands and files only and can stay offline.
// Single loop, one session at a time.
//
//   SB_CO_TRY(int served, co_await RunClaudeWorker(&api, options, std::move(hooks)));
#pragma once

#include <functional>
#include <string>

#include "client/api_client.h"
#include "llm/options.h"

namespace sandbar::llm {

struct ClaudeWorkerHooks {
  std::function<Task<int>()> stop;
  std::function<void(const std::string& line)> say;
  std::string url, key;  // of the service; from the host's environment
};

// How many sessions were served. An Error: wrong settings, or a service that refuses for good.
Task<int> RunClaudeWorker(client::ApiClient* api, ClaudeWorkerOptions options, ClaudeWorkerHooks hooks);

}  // namespace sandbar::llm
