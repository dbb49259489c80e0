// The role Drives: directories that outlive sandboxes and that sessions mount. Single loop. Every call takes the
// caller's Scope; a drive of another project answers as unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "async/task.h"
#include "sandbox/scope.h"
#include "store/records.h"

namespace sandbar::sandbox {

// An absent field means: as it is, or the default for a new drive.
struct DriveSpec {
  std::optional<std::string> region;
  std::optional<uint64_t> max_size_bytes;
};

struct DriveView {
  store::Drive drive;
  std::string session, sandbox;  // that mount it read-write; empty: none does
  bool created = false;
};

class Drives {
 public:
  virtual ~Drives() = default;
  // Returns the drive of this name, or creates it. kConflict when it exists with another region or size than asked for.
  virtual Task<DriveView> Make(Scope scope, std::string name, DriveSpec spec) = 0;
  virtual Task<Page<DriveView>> List(Scope scope, ListQuery query) = 0;  // sorted by createdAt, updatedAt or name
  virtual Task<DriveView> Delete(Scope scope, std::string name) = 0;     // kConflict while a session can write
};

}  // namespace sandbar::sandbox
