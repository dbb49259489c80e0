// What a stack of overlay layers shows, read without mounting it: whiteouts, opaque and redirected directories. The
// trees were written by guests: everything is opened by directory fd, no link is followed. Any thread.
//
//   Merged top = LookUp(layers, {"etc"});    // the directories that /etc is made of, topmost first
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace sandbar::os {

inline constexpr std::string_view kOverlayPrefix = "trusted.overlay.";
inline constexpr const char* kOpaque = "trusted.overlay.opaque";
inline constexpr const char* kRedirect = "trusted.overlay.redirect";
inline constexpr size_t kMaxDepth = 1500;  // of a tree that is walked

using Path = std::vector<std::string>;
std::string Join(const Path& path);

bool IsWhiteout(const struct stat& st);
Fd OpenDirAt(int dir, const std::string& name);

// What one directory of the merged view is made of.
struct Merged {
  std::vector<std::pair<size_t, Fd>> parts;  // layer and directory, topmost first
  bool opaque = false;                       // nothing below the given layers shows through
  Path below;                                // where the layers below are looked at
};

Merged LookUp(const std::vector<Fd>& layers, const Path& path);

}  // namespace sandbar::os
