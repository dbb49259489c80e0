#include "protocol/file_entry.h"

#include "protocol/codec.h"
#include "protocol/guest_limits.h"

namespace sandbar::protocol {

template <class A>
void Fields(A& a, Is<FileEntry> auto& e) {
  a.Text(e.name, kMaxPath);
  a.Require(!e.name.empty());
  a.Enum(e.type, FileType::kOther);
  a(e.size);
  a(e.mode);
  a.Require(e.mode <= kMaxMode);
  a(e.uid);
  a(e.gid);
  a(e.links);
  a(e.accessed_ns);
  a(e.modified_ns);
  a.Text(e.target, kMaxPath);
}

std::string EncodeEntry(const FileEntry& entry) {
  Put fields;
  Fields(fields, entry);
  ByteWriter out;
  out.Str(fields.Take());
  return out.Take();
}

Result<std::vector<FileEntry>> DecodeEntries(std::string_view bytes) {
  std::vector<FileEntry> entries;
  ByteReader in(bytes);
  while (in.remaining() > 0) {
    const std::string_view fields = in.Str(kMaxListing);
    Get get(fields);
    if (in.ok()) Fields(get, entries.emplace_back());
    if (!in.ok() || !get.ok() || entries.size() > kMaxListed)
      return Fail(Code::kProtocol, "the agent's list of files is broken");
  }
  return entries;
}

}  // namespace sandbar::protocol
