#include "client/tar_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "wire/tar.h"

namespace sandbar::client {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kPiece = 256 << 10;

void Pad(std::string* out) {
  out->append((kBlock - out->size() % kBlock) % kBlock, '\0');
}

// "<length> path=<name>\n", where the length counts itself.
std::string PaxRecord(std::string_view key, std::string_view value) {
  size_t bare = key.size() + value.size() + 3;
  size_t total = bare + std::to_string(bare).size();
  if (std::to_string(total).size() != std::to_string(bare).size()) ++total;
  return fmt::format("{} {}={}\n", total, key, value);
}

std::string Ustar(std::string_view name, uint64_t size, unsigned mode, char type) {
  std::string block(kBlock, '\0');
  auto put = [&](size_t at, std::string_view text) { std::memcpy(block.data() + at, text.data(), text.size()); };
  put(0, name.substr(0, 100));
  put(100, fmt::format("{:07o}", mode));
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", size));
  put(136, "00000000000");
  put(148, "        ");
  block[156] = type;
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  block[154] = '\0';
  return block;
}

wire::TarEntry Describe(const TarItem& item, const struct stat& st) {
  wire::TarEntry entry;
  entry.name = item.name;
  entry.mode = st.st_mode & 0777;
  entry.mtime = st.st_mtim.tv_sec;
  entry.mtime_given = item.keep_time;
  return entry;
}

Result<std::string> ReadLink(const std::string& path) {
  std::string text(wire::kMaxTarName + 1, '\0');
  const ssize_t n = ::readlink(path.c_str(), text.data(), text.size());
  if (n < 0) return FailErrno(path);
  if (static_cast<size_t>(n) == text.size()) return Fail(Code::kTooLarge, path + ": the link's target is too long");
  text.resize(static_cast<size_t>(n));
  return text;
}

}  // namespace

std::string TarHeader(const std::string& name, uint64_t size, unsigned mode) {
  bool ascii = std::ranges::all_of(name, [](char c) { return c > 0x1F && c < 0x7F; });
  std::string records;
  if (name.size() > 100 || !ascii) records += PaxRecord("path", name);
  if (size >= (1ULL << 33)) records += PaxRecord("size", std::to_string(size));
  std::string out;
  if (!records.empty()) {
    out = Ustar("pax", records.size(), 0644, 'x') + records;
    Pad(&out);
  }
  uint64_t field = size >= (1ULL << 33) ? 0 : size;
  return out + Ustar(ascii ? name : std::string("file"), field, mode, '0');
}

TarStream::TarStream(std::vector<TarItem> items) : items_(std::move(items)) {
  // 16 + window bits: a gzip header.
  SB_CHECK(deflateInit2(&zip_, Z_BEST_SPEED, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY) == Z_OK);
}

TarStream::~TarStream() {
  deflateEnd(&zip_);
}

Result<> TarStream::Open(const TarItem& item) {
  if (item.content) {
    plain_ += TarHeader(item.name, item.content->size(), item.mode) + *item.content;
    plain_.append((kBlock - item.content->size() % kBlock) % kBlock, '\0');
    return {};
  }
  if (item.kind == TarItem::Kind::kFile) return OpenFile(item);
  struct stat st{};
  if (::lstat(item.path.c_str(), &st) != 0) return FailErrno(item.path);
  const bool link = item.kind == TarItem::Kind::kLink;
  if (link ? !S_ISLNK(st.st_mode) : !S_ISDIR(st.st_mode))
    return Fail(Code::kIo, item.path + " became something else while it was copied");
  wire::TarEntry entry = Describe(item, st);
  if (link) {
    SB_TRY(entry.target, ReadLink(item.path));
    entry.kind = wire::TarEntry::Kind::kSymlink;
  } else {
    entry.directory = true;
  }
  plain_ += wire::TarHeader(entry);
  return {};
}

Result<> TarStream::OpenFile(const TarItem& item) {
  // Without O_NONBLOCK the open of a FIFO would wait for a writer.
  file_ = Fd(::open(item.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file_) return FailErrno(item.path);
  struct stat st{};
  if (::fstat(file_.get(), &st) != 0) return FailErrno(item.path);
  if (!S_ISREG(st.st_mode)) return Fail(Code::kBadRequest, item.path + " is not a regular file");
  left_ = static_cast<uint64_t>(st.st_size);
  wire::TarEntry entry = Describe(item, st);
  entry.size = left_;
  plain_ += wire::TarHeader(entry);
  return {};
}

Result<> TarStream::Refill() {
  if (left_ > 0) {
    std::string piece(std::min<uint64_t>(left_, kPiece), '\0');
    ssize_t n = ::read(file_.get(), piece.data(), piece.size());
    if (n < 0) return FailErrno("read " + items_[next_ - 1].path);
    if (n == 0) return Fail(Code::kIo, items_[next_ - 1].path + " became shorter while it was copied");
    plain_.append(piece, 0, static_cast<size_t>(n));
    left_ -= static_cast<uint64_t>(n);
    // plain_ starts at a block border whenever a file starts, so padding by its length would be wrong after a flush:
    // the file's own size decides.
    if (left_ == 0) {
      struct stat st{};
      if (::fstat(file_.get(), &st) != 0) return FailErrno("fstat");
      off_t end = ::lseek(file_.get(), 0, SEEK_CUR);
      plain_.append((kBlock - static_cast<size_t>(end) % kBlock) % kBlock, '\0');
    }
    return {};
  }
  if (next_ < items_.size()) return Open(items_[next_++]);
  plain_.append(2 * kBlock, '\0');
  trailer_ = true;
  return {};
}

std::string TarStream::Deflate(std::string_view bytes, bool finish) {
  std::string out;
  std::string buffer(kPiece, '\0');
  zip_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  zip_.avail_in = static_cast<uInt>(bytes.size());
  do {
    zip_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    zip_.avail_out = static_cast<uInt>(buffer.size());
    int r = deflate(&zip_, finish ? Z_FINISH : Z_NO_FLUSH);
    SB_CHECK(r == Z_OK || r == Z_STREAM_END || r == Z_BUF_ERROR);
    out.append(buffer, 0, buffer.size() - zip_.avail_out);
  } while (zip_.avail_out == 0);
  return out;
}

Result<std::string> TarStream::Next() {
  std::string out;
  while (!done_ && out.empty()) {
    while (!trailer_ && plain_.size() < kPiece) SB_TRYV(Refill());
    out = Deflate(plain_, trailer_);
    plain_.clear();
    if (trailer_) done_ = true;
  }
  return out;
}

}  // namespace sandbar::client
