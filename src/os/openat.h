// Files by directory fd. Everything that a guest or an unprivileged process can have written is opened through here:
// no symlink is followed, nothing outside the given root is reached. Any thread.
//
//   SB_TRY(Fd dir, OpenInside(root.get(), "proc", O_PATH | O_DIRECTORY));   // fails if it is a link, a file, missing
//   SB_TRYV(RemoveTree(store.get(), "machine-1"));                          // dirfds and O_NOFOLLOW all the way down
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

// openat2 with RESOLVE_IN_ROOT, NO_SYMLINKS and NO_MAGICLINKS; O_CLOEXEC and O_NOFOLLOW are added.
Result<Fd> OpenInside(int root, const std::string& path, int flags, mode_t mode = 0);
// Links are followed, but as if `root` were "/": for trees whose owner we trust to be sane, not to be friendly.
Result<Fd> OpenInRoot(int root, const std::string& path, int flags);
// A plain open of a path that the operator chose.
Result<Fd> OpenPath(const std::string& path, int flags, mode_t mode = 0);

// Creates the directory if needed and opens it; owner and mode are set in either case.
Result<Fd> EnsureDir(int parent, const std::string& name, mode_t mode, uid_t uid = 0, gid_t gid = 0);

// OpenPath, then ReadAll of base/files.h: refuses more than `max` bytes.
Result<std::string> ReadFile(const std::string& path, size_t max);
// New file of exactly these bytes; an old one of that name is replaced.
Result<> WriteFileAt(int dir, const std::string& name, std::string_view bytes, mode_t mode);
Result<std::vector<std::string>> ListDir(int dir);

// Deletes a file or a whole tree below `parent`. Does not cross into other filesystems and goes at most 256 deep on the
// stack (a deeper tree is moved up to the top and removed from there).
Result<> RemoveTree(int parent, const std::string& name);

}  // namespace sandbar::os
