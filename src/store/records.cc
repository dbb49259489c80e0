#include "store/records.h"

#include <array>

#include "base/ids.h"

namespace sandbar::store {
namespace {

constexpr std::array<std::string_view, 7> kStatusNames = {"pending", "running", "stopping",    "stopped",
                                                          "failed",  "aborted", "snapshotting"};

constexpr std::array<std::string_view, 3> kKeyRoleNames = {"viewer", "operator", "admin"};

}  // namespace

std::string_view KeyRoleName(KeyRole role) {
  return kKeyRoleNames.at(static_cast<size_t>(role));
}

std::optional<KeyRole> KeyRoleFromName(std::string_view name) {
  for (size_t i = 0; i < kKeyRoleNames.size(); ++i) {
    if (kKeyRoleNames.at(i) == name) return static_cast<KeyRole>(i);
  }
  return std::nullopt;
}

std::string_view StatusName(Status s) {
  return kStatusNames.at(static_cast<size_t>(s));
}

std::optional<Status> StatusFromName(std::string_view name) {
  for (size_t i = 0; i < kStatusNames.size(); ++i) {
    if (kStatusNames.at(i) == name) return static_cast<Status>(i);
  }
  return std::nullopt;
}

std::string NewSandboxId() {
  return NewId("sbid_");
}

}  // namespace sandbar::store
