#include "sandbox/project_limits.h"

#include "sandbox/core.h"

namespace sandbar::sandbox {

engine::Owner DiskOwner(const Core& core, const std::string& team, const std::string& project) {
  // A keyed hash: nobody can choose a name that gets another project's number.
  const std::string bytes = core.vault.Derive("disk owner " + std::to_string(team.size()) + " " + team + " " + project);
  engine::Owner owner;
  for (size_t i = 0; i < 6; ++i) owner.project = owner.project << 8 | static_cast<uint8_t>(bytes[i]);
  if (owner.project == 0) owner.project = 1;
  owner.bytes = core.config.project.disk_bytes;
  return owner;
}

}  // namespace sandbar::sandbox
