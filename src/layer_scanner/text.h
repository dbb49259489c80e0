// Names that guests chose, as words of a line: printable, without spaces, reversible. And the order of paths in a
// manifest: a directory, what is in it, then its next sibling. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace sandbar::layer_scanner {

// Everything but printable ASCII becomes %XX, and so do the space and "%". Slashes stay.
std::string Escape(std::string_view name);
// Escape(a) < Escape(b), without making either.
bool EscapedLess(std::string_view a, std::string_view b);
// Paths that were escaped.
bool PathLess(std::string_view a, std::string_view b);

}  // namespace sandbar::layer_scanner
