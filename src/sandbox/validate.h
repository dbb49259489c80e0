// Checks requests of callers against the limits of the protocol and of the operator. Pure functions; a message names
// the field and the limit, so that the caller can correct the request without documentation.
#pragma once

#include "base/result.h"
#include "sandbox/config.h"
#include "sandbox/roles.h"
#include "store/store.h"

namespace sandbar::sandbox {

struct Size {
  int vcpus = 2;
  int memory_mb = 4096;
};
Result<Size> CheckResources(const Resources& wanted, const Config& config);
Result<int64_t> CheckTimeout(int64_t timeout_ms, const Config& config);
Result<> CheckName(const std::string& name);
Result<> CheckRegionName(const std::string& region);
// 0 (never), or at least a day.
Result<> CheckSnapshotExpiration(std::string_view field, int64_t ms);

// A sandbox row with everything that the spec decides; identity, image and status are the caller's.
Result<store::Sandbox> CheckCreate(const CreateSpec& spec, const Config& config);
// Applies the update to the row.
Result<> ApplyUpdate(const UpdateSpec& spec, const Config& config, store::Sandbox& row);
Result<store::ListFilter> CheckList(const Scope& scope, const ListQuery& query, bool sessions);

// Bounds of one command, before its environment is made.
Result<> CheckCommand(const CommandSpec& spec);
// argv and environment together must fit a frame and the kernel's limits.
Result<> CheckExecSize(const std::vector<std::string>& argv, const std::vector<std::string>& env);
// A path that a caller sent: bounded, no NUL.
Result<> CheckPath(const std::string& what, const std::string& path);

// `path` against `base` when it is relative; textual, "." and ".." are left to the guest's kernel.
std::string Resolve(const std::string& base, const std::string& path);

}  // namespace sandbar::sandbox
