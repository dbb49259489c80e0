// The file of `sandbar export`, as `sandbar import` reads it. Anybody may have made it, so it grants itself nothing:
// its sizes are checked before a byte is written, and of its settings only harmless ones become part of the request.
// Blocking; one user, one thread.
//
//   SB_TRY(json::object settings, ReadArchive("box.tar.zst", "/tmp/work", max_size));
//   ImportRequest request = RequestFor(settings, command);
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/sandbox_options.h"

namespace sandbar::cli {

inline constexpr int kArchiveFormat = 1;
inline constexpr size_t kMaxDeletedList = 256 << 20;

// Its three files (sandbar.json, deleted, files.tar) into the directory `to`. Returns the settings. `max_size` bounds
// files.tar; without it, a file that is far larger than its compressed form is refused.
Result<boost::json::object> ReadArchive(const std::string& file, const std::string& to,
                                        std::optional<uint64_t> max_size);

// A text of the archive for a person's terminal: quoted, at most 200 bytes, without control characters.
std::string QuoteForeign(std::string_view text);

struct ImportRequest {
  boost::json::object body;            // of POST /v2/sandboxes
  std::vector<std::string> not_taken;  // what the archive asks for and does not get, with the flag that grants it
};
// Name, image and plain tags are the archive's. Nesting, ports, cpus, longer timeouts and the rest are the flags'. A
// class that the archive demands is kept, because it can only make the boundary stronger; flags win over it.
ImportRequest RequestFor(const boost::json::object& settings, const ImportCommand& command);

}  // namespace sandbar::cli
