#include "wire/tree.h"

#include "base/bytes.h"

namespace sandbar::wire {
namespace {

constexpr size_t kMaxAttributes = 256;
constexpr size_t kMaxAttributeName = 255;
constexpr size_t kMaxAttribute = 64 << 10;
constexpr size_t kPieceHead = 12;

std::unexpected<Error> Bad(const char* what) {
  return Fail(Code::kBadRequest, std::string("a tree of files: ") + what);
}

bool GoodPath(std::string_view path) {
  if (path.size() > kMaxTreePath || path.contains('\0')) return false;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    path.remove_prefix(part.size());
    if (path == "/") return false;
    if (!path.empty()) path.remove_prefix(1);
  }
  return true;
}

Result<> Check(const TreeEntry& e) {
  if (!GoodPath(e.path) || (e.path.empty() && e.kind != TreeKind::kDirectory)) return Bad("a bad name");
  if (e.kind == TreeKind::kHardLink && (e.target.empty() || !GoodPath(e.target))) return Bad("a bad link");
  if (e.kind == TreeKind::kSymlink && (e.target.empty() || e.target.size() > kMaxTreePath || e.target.contains('\0')))
    return Bad("a bad link");
  if (e.mode > 07777 || e.mtime_ns >= 1'000'000'000) return Bad("a bad mode or time");
  for (const auto& [name, value] : e.attributes)
    if (name.empty() || name.contains('\0')) return Bad("a bad attribute");
  return {};
}

}  // namespace

std::string EncodeTreeEntry(const TreeEntry& e) {
  ByteWriter w;
  w.U8(static_cast<uint8_t>(e.kind));
  w.Str(e.path);
  w.U8(e.fresh ? 1 : 0);
  w.Str(e.target);
  w.U32(e.mode);
  w.U32(e.uid);
  w.U32(e.gid);
  w.I64(e.mtime_s);
  w.U32(e.mtime_ns);
  w.U32(static_cast<uint32_t>(e.attributes.size()));
  for (const auto& [name, value] : e.attributes) {
    w.Str(name);
    w.Str(value);
  }
  ByteWriter out;
  out.Str(w.str());
  return out.Take();
}

std::string EncodeTreePiece(uint64_t offset, std::string_view bytes) {
  ByteWriter w;
  w.U64(offset);
  w.Str(bytes);
  return w.Take();
}

Result<size_t> TreeReader::Entry(std::string_view bytes) {
  if (bytes.size() < 4) return 0;
  const size_t size = ByteReader(bytes).U32();
  if (size > kMaxTreeEntry) return Bad("an entry that is too long");
  if (bytes.size() - 4 < size) return 0;
  ByteReader r(bytes.substr(4, size));
  TreeEntry e;
  const uint8_t kind = r.U8();
  e.kind = static_cast<TreeKind>(kind);
  e.path = r.Str(kMaxTreePath);
  e.fresh = r.U8() != 0;
  e.target = r.Str(kMaxTreePath);
  e.mode = r.U32();
  e.uid = r.U32();
  e.gid = r.U32();
  e.mtime_s = r.I64();
  e.mtime_ns = r.U32();
  const uint32_t count = r.U32();
  if (count > kMaxAttributes) return Bad("too many attributes");
  for (uint32_t i = 0; i < count && r.ok(); ++i) {
    std::string name(r.Str(kMaxAttributeName));
    e.attributes.emplace_back(std::move(name), r.Str(kMaxAttribute));
  }
  if (!r.Done() || kind > static_cast<uint8_t>(TreeKind::kDeleted)) return Bad("malformed");
  if (e.kind == TreeKind::kEnd) {
    ended_ = true;
    return 4 + size;
  }
  SB_TRYV(Check(e));
  SB_TRYV(sink_->OnEntry(e));
  in_file_ = e.kind == TreeKind::kFile;
  return 4 + size;
}

Result<size_t> TreeReader::Piece(std::string_view bytes) {
  if (bytes.size() < kPieceHead) return 0;
  ByteReader r(bytes);
  const uint64_t offset = r.U64();
  const size_t size = r.U32();
  if (size > kMaxTreePiece || offset > kMaxTreeFile) return Bad("a piece that is too long");
  if (bytes.size() - kPieceHead < size) return 0;
  if (size == 0) {
    in_file_ = false;
    SB_TRYV(sink_->OnFileEnd(offset));
  } else {
    SB_TRYV(sink_->OnPiece(offset, bytes.substr(kPieceHead, size)));
  }
  return kPieceHead + size;
}

Result<> TreeReader::Feed(std::string_view bytes) {
  buffer_ += bytes;
  size_t at = 0;
  while (!ended_) {
    const std::string_view rest = std::string_view(buffer_).substr(at);
    SB_TRY(size_t taken, in_file_ ? Piece(rest) : Entry(rest));
    if (taken == 0) break;
    at += taken;
  }
  buffer_.erase(0, at);
  if (ended_ && !buffer_.empty()) return Bad("bytes after its end");
  return {};
}

Result<> TreeReader::Finish() const {
  if (!ended_) return Bad("it ends early");
  return {};
}

}  // namespace sandbar::wire
