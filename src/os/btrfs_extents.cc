#include "os/btrfs_extents.h"

#include <endian.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

#include "os/btrfs.h"
#include "os/openat.h"

namespace sandbar::os {
namespace {

constexpr size_t kBuffer = 256 << 10;     // more than the largest item
constexpr size_t kMaxExtents = 4 << 20;   // of one file
constexpr uint64_t kItemHead = 25;        // bytes of a leaf that each item takes beside its own
constexpr uint64_t kWorstFill = 3;        // the kernel merges most leaves that are less than a third full
constexpr int kHandleType = 0x4d;         // FILEID_BTRFS_WITHOUT_PARENT
constexpr unsigned kHandleBytes = 5 * 4;  // of its file handle
constexpr uint64_t kAll = ~0ULL;

// Keys of a tree in their order, with the bytes of their items. 64-bit words, so that the arguments are aligned.
class TreeReader {
 public:
  TreeReader(int fd, uint64_t tree) : fd_(fd), words_((sizeof(btrfs_ioctl_search_args_v2) + kBuffer) / 8) {
    key_.tree_id = tree;
    key_.max_objectid = key_.max_offset = key_.max_transid = kAll;
    key_.max_type = 255;
  }
  void Only(uint64_t object, uint32_t type) {
    key_.min_objectid = key_.max_objectid = object;
    key_.min_type = key_.max_type = type;
  }
  template <class F>
  Result<> Each(F each) {
    for (;;) {
      auto* args = reinterpret_cast<btrfs_ioctl_search_args_v2*>(words_.data());
      args->key = key_;
      args->key.nr_items = UINT32_MAX;
      args->buf_size = kBuffer;
      if (::ioctl(fd_, BTRFS_IOC_TREE_SEARCH_V2, args) != 0) return FailErrno("read a tree of the store");
      const uint32_t count = args->key.nr_items;
      if (count == 0) return {};
      const char* at = reinterpret_cast<const char*>(words_.data()) + sizeof(btrfs_ioctl_search_args_v2);
      btrfs_ioctl_search_header header{};
      for (uint32_t i = 0; i < count; ++i) {
        std::memcpy(&header, at, sizeof header);
        at += sizeof header;
        SB_TRYV(each(header, at));
        at += header.len;
      }
      // The next key in the order of (object, type, offset).
      key_.min_objectid = header.objectid;
      key_.min_type = header.type;
      key_.min_offset = header.offset + 1;
      if (key_.min_offset == 0 && ++key_.min_type > 255) {
        key_.min_type = 0;
        if (++key_.min_objectid == 0) return {};
      }
      if (key_.min_objectid > key_.max_objectid) return {};
    }
  }

 private:
  int fd_;
  btrfs_ioctl_search_key key_{};
  std::vector<uint64_t> words_;
};

struct Birth {
  uint64_t transaction = 0;  // in which the copy was made
  uint64_t tree_bytes = 0;   // of its metadata, old and new, as of the last commit
};

Result<Birth> BirthOf(int subvolume, uint64_t id) {
  Birth birth;
  bool found = false;
  TreeReader roots(subvolume, BTRFS_ROOT_TREE_OBJECTID);
  roots.Only(id, BTRFS_ROOT_ITEM_KEY);
  SB_TRYV(roots.Each([&](const btrfs_ioctl_search_header& header, const char* bytes) -> Result<> {
    btrfs_root_item item{};
    if (header.type != BTRFS_ROOT_ITEM_KEY || header.len < sizeof item) return {};
    std::memcpy(&item, bytes, sizeof item);
    birth = {le64toh(item.otransid), le64toh(item.bytes_used)};
    found = true;
    return {};
  }));
  if (!found) return Fail(Code::kNotFound, "there is no such subvolume");
  return birth;
}

class OldExtents {
 public:
  OldExtents(int subvolume, uint64_t id, Birth birth, bool write_out)
      : subvolume_(subvolume), id_(id), birth_(birth), write_out_(write_out) {}

  Result<> Take(const btrfs_ioctl_search_header& header, const char* bytes) {
    if (header.objectid != inode_) EndFile(header.objectid);
    // A header names the transaction in which its whole leaf was written, not its item.
    if (header.transid <= birth_.transaction) metadata_ += header.len + kItemHead;
    if (header.type == BTRFS_INODE_ITEM_KEY && header.len >= sizeof(btrfs_inode_item)) {
      btrfs_inode_item item{};
      std::memcpy(&item, bytes, sizeof item);
      generation_ = le64toh(item.generation);
      regular_ = S_ISREG(le32toh(item.mode));
    }
    if (header.type != BTRFS_EXTENT_DATA_KEY || header.len < sizeof(btrfs_file_extent_item)) return {};
    btrfs_file_extent_item item{};
    std::memcpy(&item, bytes, sizeof item);
    const uint64_t where = le64toh(item.disk_bytenr);
    if (item.type == BTRFS_FILE_EXTENT_INLINE || where == 0) return {};
    if (le64toh(item.generation) > birth_.transaction) return {};
    if (extents_.size() >= kMaxExtents) Unite();
    if (extents_.size() >= kMaxExtents) return Fail(Code::kTooLarge, "a file has too many extents");
    extents_.emplace_back(where, le64toh(item.disk_num_bytes));
    return {};
  }
  uint64_t Sum() {
    EndFile(0);
    return data_ + std::min(metadata_ * kWorstFill, birth_.tree_bytes);
  }

 private:
  void Unite() {
    std::ranges::sort(extents_);
    extents_.erase(std::ranges::unique(extents_).begin(), extents_.end());
  }
  // No two files share an extent: guests cannot make them do so. If some did, it would count twice.
  void EndFile(uint64_t next) {
    Unite();
    for (const auto& [where, bytes] : extents_) data_ += bytes;
    if (!extents_.empty() && write_out_ && regular_) WriteOut();
    extents_.clear();
    inode_ = next;
    regular_ = false;
  }
  void WriteOut() const {
    // A file_handle with the file's number, its subvolume's, and its generation.
    std::array<uint64_t, 4> words{};
    auto* handle = reinterpret_cast<file_handle*>(words.data());
    handle->handle_bytes = kHandleBytes;
    handle->handle_type = kHandleType;
    const auto generation = static_cast<uint32_t>(generation_);
    std::memcpy(handle->f_handle, &inode_, 8);
    std::memcpy(handle->f_handle + 8, &id_, 8);
    std::memcpy(handle->f_handle + 16, &generation, 4);
    // A file that was deleted meanwhile cannot be opened and needs nothing.
    const Fd file(::open_by_handle_at(subvolume_, handle, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    if (file) ::sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  }

  int subvolume_;
  uint64_t id_;
  Birth birth_;
  bool write_out_;
  uint64_t inode_ = 0, generation_ = 0;
  bool regular_ = false;
  std::vector<std::pair<uint64_t, uint64_t>> extents_;  // of one file: where, how many bytes
  uint64_t data_ = 0, metadata_ = 0;
};

}  // namespace

Result<QuotaMeter> QuotaMeter::Open(Fd subvolume) {
  SB_TRY(std::string path, BtrfsSysPath(subvolume.get()));
  QuotaMeter meter;
  SB_TRY(meter.id_, SubvolumeId(subvolume.get()));
  path += "/qgroups/0_" + std::to_string(meter.id_) + "/";
  meter.subvolume_ = std::move(subvolume);
  size_t i = 0;
  for (const char* name : {"referenced", "rsv_data", "rsv_meta_pertrans", "rsv_meta_prealloc"}) {
    meter.files_[i] = Fd(::open((path + name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!meter.files_[i++]) return Fail(Code::kUnsupported, "the kernel does not show " + path + name);
  }
  return meter;
}

Result<Held> QuotaMeter::Read() const {
  std::array<uint64_t, 4> values{};
  for (size_t i = 0; i < values.size(); ++i) {
    std::array<char, 32> text{};
    const ssize_t n = ::pread(files_[i].get(), text.data(), text.size(), 0);
    if (n <= 0) return FailErrno("read a quota group");
    if (std::from_chars(text.data(), text.data() + n, values[i]).ec != std::errc{})
      return Fail(Code::kInternal, "a quota group shows no number");
  }
  return Held{values[0], values[1], values[2] + values[3]};
}

Result<uint64_t> QuotaMeter::Generation() const {
  btrfs_ioctl_search_args search{};
  search.key.tree_id = BTRFS_ROOT_TREE_OBJECTID;
  search.key.min_objectid = search.key.max_objectid = id_;
  search.key.min_type = search.key.max_type = BTRFS_ROOT_ITEM_KEY;
  search.key.max_offset = search.key.max_transid = kAll;
  search.key.nr_items = 1;
  if (::ioctl(subvolume_.get(), BTRFS_IOC_TREE_SEARCH, &search) != 0) return FailErrno("look at a subvolume");
  btrfs_root_item item{};
  if (search.key.nr_items == 0) return Fail(Code::kNotFound, "there is no such subvolume");
  std::memcpy(&item, search.buf + sizeof(btrfs_ioctl_search_header), sizeof item);
  return le64toh(item.generation);
}

Result<uint64_t> InheritedBytes(int subvolume, bool write_out) {
  SB_TRY(uint64_t id, SubvolumeId(subvolume));
  SB_TRY(Birth birth, BirthOf(subvolume, id));
  OldExtents old(subvolume, id, birth, write_out);
  TreeReader tree(subvolume, 0);  // its own
  SB_TRYV(tree.Each([&](const btrfs_ioctl_search_header& h, const char* bytes) { return old.Take(h, bytes); }));
  return old.Sum();
}

}  // namespace sandbar::os
