#include "api/shares.h"

namespace sandbar::api {

Result<Shares::Place> Shares::Take(const std::string& project, const std::string& sandbox) {
  const size_t may_have = (in_all_ - open_) * weight_;
  auto found = projects_.find(project);
  const size_t projects = found == projects_.end() ? 0 : found->second.open;
  if (projects >= may_have)
    return Fail(Code::kTooMany, "this project has too many requests under way; try again when some have ended");
  size_t sandboxes = 0;
  if (found != projects_.end()) {
    auto it = found->second.sandboxes.find(sandbox);
    if (it != found->second.sandboxes.end()) sandboxes = it->second;
  }
  if (!sandbox.empty() && sandboxes >= may_have - projects)
    return Fail(Code::kTooMany, "this sandbox has too many requests under way; try again when some have ended");
  ++open_;
  Project& taken = projects_[project];
  ++taken.open;
  ++taken.sandboxes[sandbox];
  return Place(this, project, sandbox);
}

void Shares::GiveBack(const std::string& project, const std::string& sandbox) {
  auto found = projects_.find(project);
  SB_CHECK(found != projects_.end() && open_ > 0);
  --open_;
  auto it = found->second.sandboxes.find(sandbox);
  SB_CHECK(it != found->second.sandboxes.end());
  if (--it->second == 0) found->second.sandboxes.erase(it);
  if (--found->second.open == 0) projects_.erase(found);
}

}  // namespace sandbar::api
