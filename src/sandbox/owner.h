// Whose work the engine does: the one that shares of its workers are counted by.
#pragma once

#include <string>

namespace sandbar::sandbox {

// Of a row that belongs to a project, or of a scope.
template <class Row>
std::string OwnerOf(const Row& row) {
  return row.team + "/" + row.project;
}

}  // namespace sandbar::sandbox
