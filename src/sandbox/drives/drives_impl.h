// The role Drives: rows in the store and directories or devices on disk. Single loop; owned by the domain.
#pragma once

#include <string>

#include "sandbox/core.h"
#include "sandbox/drives/drives.h"
#include "sandbox/housekeeper.h"

namespace sandbar::sandbox {

class DrivesImpl final : public Drives {
 public:
  DrivesImpl(Core* core, Housekeeper* housekeeper) : core_(core), housekeeper_(housekeeper) {}

  Task<DriveView> Make(Scope scope, std::string name, DriveSpec spec) override;
  Task<Page<DriveView>> List(Scope scope, ListQuery query) override;
  Task<DriveView> Delete(Scope scope, std::string name) override;

  // Chore: removes drives and drive snapshots from disk that nothing can ask for any more.
  Task<> Tidy();

 private:
  Task<DriveView> MakeNow(Scope scope, std::string name, DriveSpec spec);

  Core* core_;
  Housekeeper* housekeeper_;
};

}  // namespace sandbar::sandbox
