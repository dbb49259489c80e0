// Writes the entries of an archive below the current directory, as the process's user. For a file worker only: it
// follows the guest's symbolic links like any program of that user would. Modes and times of directories are set last,
// by Finish(): a directory that may not be written must be filled first.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "wire/tar.h"

namespace sandbar::guest {

// mkdir -p. Existing directories are fine; a file in the way is EEXIST or ENOTDIR.
Result<> MakeDirectories(const std::string& path);

class Extractor : public wire::TarSink {
 public:
  Result<> OnEntry(const wire::TarEntry& entry) override;
  Result<> OnData(std::string_view bytes) override;
  Result<> OnEntryEnd() override;
  Result<> Finish();

 private:
  Fd file_;
  wire::TarEntry entry_;
  std::vector<wire::TarEntry> made_;  // directories
};

}  // namespace sandbar::guest
