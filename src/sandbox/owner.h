// The owner of work that the engine does: each owner gets a share of its workers.
#pragma once

#include <string>

namespace sandbar::sandbox {

// The owner of a row that belongs to a project, or of a scope.
template <class Row>
std::string OwnerOf(const Row& row) {
  return row.team + "/" + row.project;
}

}  // namespace sandbar::sandbox
