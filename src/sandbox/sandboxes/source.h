// The source of a new sandbox: a git repository or a tar archive. The machine fetches it before the caller's policy is
// in force, under a policy that allows only the source's host. The egress proxy puts a user name and password into the
// requests, so the machine never sees them. Pure functions.
//
//   SB_TRY(SourcePlan plan, PlanSource(spec));
//   … put plan.policy in force, run plan.argv as the sandbox's user in its working directory …
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "egress/policy.h"

namespace sandbar::sandbox {

struct SourceSpec {
  enum class Kind { kGit, kTarball };
  Kind kind = Kind::kGit;
  std::string url;
  std::optional<int> depth;
  std::optional<std::string> revision;  // branch, tag or commit
  std::optional<std::string> username, password;
};

struct SourcePlan {
  egress::PolicyRef policy;
  std::vector<std::string> argv;
};

// kBadRequest names the field.
Result<SourcePlan> PlanSource(const SourceSpec& spec);

// The message of a failed fetch: the end of its output, without control characters.
std::string SourceMessage(const SourceSpec& spec, int exit_code, const std::string& output);

}  // namespace sandbar::sandbox
