// The things that all types of the domain share: configuration, the interfaces below, and the pools for work off the
// loop. Made by the domain, outlives everything else in it. Single loop; only the store's calls, Files() and Match()
// leave it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "async/task.h"
#include "sandbox/commands/log_budget.h"
#include "sandbox/config.h"
#include "sandbox/domain.h"
#include "sandbox/engine_selector.h"
#include "sandbox/vault.h"
#include "store/async_directory.h"
#include "store/store.h"

namespace sandbar::sandbox {

struct Core {
  Core(asio::any_io_executor executor, Config c, Dependencies d, EngineSelector l = {})
      : ex(std::move(executor)), config(std::move(c)), deps(std::move(d)), engines(std::move(l)), vault(deps.secret) {}

  asio::any_io_executor ex;
  const Config config;
  const Dependencies deps;
  const EngineSelector engines;
  const Vault vault;
  LogBudget logs{config.project.log_bytes, config.log_total_bytes};
  // Set first thing in Close: from then on a failing step leaves its rows for the next start instead of undoing.
  bool closing = false;

  // Runs f(store::Journal&) on the store's thread. Calls made in order are executed in order, those of `directory`
  // included.
  template <class F>
  auto Journal(F f) {
    auto call = [journal = static_cast<store::Journal*>(deps.store), fn = std::move(f)]() mutable {
      return fn(*journal);
    };
    return Offload(db_pool, std::move(call));
  }
  // Runs f(store::Store&) on the store's thread: a piece of work on both halves that nothing comes between. Only a
  // one-machine server can do that. With several machines each of these becomes ordered steps (store/store.h).
  template <class F>
  auto Combined(F f) {
    auto call = [store = deps.store, fn = std::move(f)]() mutable { return fn(*store); };
    return Offload(db_pool, std::move(call));
  }
  // Blocking file work.
  template <class F>
  auto Files(F f) {
    return Offload(file_pool, std::move(f));
  }
  // A search with a tenant's pattern.
  template <class F>
  auto Match(F f) {
    return Offload(match_pool, std::move(f));
  }
  std::string LogsDir() const { return config.data_dir + "/logs"; }
  std::string LogDir(const std::string& session) const { return LogsDir() + "/" + session; }
  std::string LogDir(const std::string& session, const std::string& command) const {
    return LogDir(session) + "/" + command;
  }

  asio::thread_pool db_pool{1};
  const std::unique_ptr<store::Directory> directory = std::make_unique<store::AsyncDirectory>(deps.store, &db_pool);
  asio::thread_pool file_pool{2};
  // For patterns of tenants that take long to search with. Each of its jobs is bounded (egress::kMaxMatchSteps).
  asio::thread_pool match_pool{1};
  // Work that goes on when its caller has gone, and the domain's background loops. Closed before anything else.
  TaskGroup tasks{ex};
};

}  // namespace sandbar::sandbox
