#include "store/records.h"

#include <array>

#include "base/ids.h"

namespace sandbar::store {
namespace {

constexpr std::array<std::string_view, 7> kStatusNames = {"pending", "running", "stopping",    "stopped",
                                                          "failed",  "aborted", "snapshotting"};

}  // namespace

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
