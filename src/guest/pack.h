// Trees of files to and from bytes (wire/tree.h), for machines that are made to carry files from one format to another:
// one packs what a machine wrote, the other unpacks it into its own root. For a file worker that is root; the bytes may
// be anybody's, and whatever they do happens in that machine.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace sandbar::guest {

using PackOut = std::function<Result<>(std::string_view)>;

// What the upper directory of an overlay adds, changes and deletes; `merged` shows the overlay, without what is mounted
// on it.
Result<> PackWritten(int upper, int merged, const PackOut& out);
// Everything in a directory.
Result<> PackAll(int dir, const PackOut& out);

// From a pipe. What lies below other mounts is left alone.
Result<> UnpackFrom(int in, const std::string& path);

}  // namespace sandbar::guest
