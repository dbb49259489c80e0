#include "sandbox/scope.h"

namespace sandbar::sandbox {

bool InScope(const Scope& scope, const std::string& team, const std::string& project) {
  return (scope.any_team || scope.team == team) && (scope.any_project || scope.project == project);
}

}  // namespace sandbar::sandbox
