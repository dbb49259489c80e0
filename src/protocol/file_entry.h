// What ListDir and StatFile (protocol/guest_streams.h) answer: entries of a directory as bytes. Pure functions; the
// bytes come from a guest and are checked.
//
//   std::string bytes = EncodeEntry(entry) + EncodeEntry(next);
//   SB_TRY(std::vector<FileEntry> entries, DecodeEntries(bytes));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbar::protocol {

enum class FileType : uint8_t { kFile, kDirectory, kSymlink, kPipe, kSocket, kBlockDevice, kCharacterDevice, kOther };

struct FileEntry {
  std::string name;  // in its directory; of StatFile the whole path, without symbolic links where they were followed
  FileType type = FileType::kFile;
  uint64_t size = 0;
  uint32_t mode = 0;  // permissions only
  uint32_t uid = 0, gid = 0;
  uint64_t links = 0;
  int64_t accessed_ns = 0, modified_ns = 0;  // since 1970
  std::string target;                        // of a symbolic link
  bool operator==(const FileEntry&) const = default;
};

std::string EncodeEntry(const FileEntry& entry);
// kProtocol: the bytes are no entries, or more than kMaxListed.
Result<std::vector<FileEntry>> DecodeEntries(std::string_view bytes);

}  // namespace sandbar::protocol
