// Writes an archive that a sandbox made below a directory of this machine. The archive is a stranger's: whatever it
// holds, nothing outside of that directory changes.
//  - Every name is resolved inside the directory, and no symbolic link is followed on the way.
//  - A file or link is made under a name of ours and renamed: what had the name before is replaced, a link too, and
//    nothing is ever written through one.
//  - Permission bits only: no setuid, no setgid, no sticky bit; no devices, FIFOs and hard links. Owner is the caller.
//  - A directory that was there before keeps its mode and time.
// An entry that cannot be written that way is left out and named; the rest arrives.
//
//   TreeWriter writer(std::move(directory));
//   wire::TarReader tar(&writer, TreeWriter::kTakes);
//   …Feed, Finish…
//   SB_TRYV(writer.Finish());                       // modes and times of directories, last
//   for (const std::string& name : writer.left_out()) …
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "wire/tar.h"

namespace sandbar::cli {

class TreeWriter final : public wire::TarSink {
 public:
  static constexpr wire::TarTakes kTakes{.symlinks = true, .others = true};
  static constexpr size_t kMaxNamed = 100;
  static constexpr uint64_t kMaxEntries = 10'000'000;

  explicit TreeWriter(Fd directory) : root_(std::move(directory)) {}
  ~TreeWriter() override;
  TreeWriter(const TreeWriter&) = delete;
  TreeWriter& operator=(const TreeWriter&) = delete;

  Result<> OnEntry(const wire::TarEntry& entry) override;
  Result<> OnData(std::string_view bytes) override;
  Result<> OnEntryEnd() override;
  Result<> Finish();

  // "name: why", at most kMaxNamed of them.
  const std::vector<std::string>& left_out() const { return left_out_; }
  uint64_t left_out_count() const { return left_out_count_; }
  uint64_t files() const { return files_; }  // and links
  uint64_t bytes() const { return bytes_; }

 private:
  Result<> EnterParent();
  Result<> MakeDirectory();
  Result<> MakeLink();
  Result<> BeginFile();
  Result<> Rename();
  // Fails for what concerns the whole copy (a full disk), names the entry for what concerns it alone.
  Result<> LeaveOut(const Error& why);

  Fd root_, parent_, file_;
  std::string parent_path_;  // of parent_, when that is open
  std::string base_, scratch_;
  wire::TarEntry entry_;
  std::vector<wire::TarEntry> made_;  // directories
  std::vector<std::string> left_out_;
  uint64_t left_out_count_ = 0, files_ = 0, bytes_ = 0, entries_ = 0;
};

}  // namespace sandbar::cli
