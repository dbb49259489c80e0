#include "wire/tar.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace sandbar::wire {
namespace {

// ustar header layout: offset and length of each field.
struct Field {
  size_t at, length;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12}, kMtime{136, 12},
    kChecksum{148, 8}, kLink{157, 100}, kMagic{257, 6}, kVersion{263, 2}, kPrefix{345, 155};
constexpr size_t kTypeAt = 156;

std::unexpected<Error> Bad(std::string message) {
  return Fail(Code::kBadRequest, std::move(message));
}

std::string_view At(const std::array<char, kTarBlock>& block, Field f) {
  return std::string_view(block.data(), block.size()).substr(f.at, f.length);
}

std::string_view UntilNul(std::string_view s) {
  return s.substr(0, s.find('\0'));
}

// Octal with optional leading spaces, ended by NUL, space or the field's end; or GNU base-256.
Result<uint64_t> Number(std::string_view field) {
  auto first = static_cast<uint8_t>(field[0]);
  uint64_t v = 0;
  if ((first & 0x80) != 0) {
    if (first != 0x80) return Bad("archive: number out of range");
    for (char c : field.substr(1)) {
      if (v >> 55 != 0) return Bad("archive: number out of range");
      v = v << 8 | static_cast<uint8_t>(c);
    }
    return v;
  }
  size_t i = field.find_first_not_of(' ');
  if (i == std::string_view::npos) return Bad("archive: malformed number");
  size_t digits = 0;
  for (; i < field.size() && field[i] >= '0' && field[i] <= '7'; ++i, ++digits)
    v = v * 8 + static_cast<uint64_t>(field[i] - '0');
  if (i < field.size() && field[i] != '\0' && field[i] != ' ') return Bad("archive: malformed number");
  // An empty field (all NUL) is zero; some writers leave mode so.
  if (digits == 0 && field[0] != '\0') return Bad("archive: malformed number");
  return v;
}

bool ChecksumHolds(const std::array<char, kTarBlock>& block) {
  auto stored = Number(At(block, kChecksum));
  if (!stored) return false;
  uint64_t sum = 0;
  int64_t signed_sum = 0;  // what some old writers computed
  for (size_t i = 0; i < block.size(); ++i) {
    bool blank = i >= kChecksum.at && i < kChecksum.at + kChecksum.length;
    char c = blank ? ' ' : block[i];
    sum += static_cast<uint8_t>(c);
    signed_sum += static_cast<signed char>(c);
  }
  return *stored == sum || (signed_sum >= 0 && *stored == static_cast<uint64_t>(signed_sum));
}

bool AllZero(const std::array<char, kTarBlock>& block) {
  return std::all_of(block.begin(), block.end(), [](char c) { return c == '\0'; });
}

// For messages: a hostile name must not fill the log.
std::string Quote(std::string_view name) {
  return "\"" + std::string(name.substr(0, 200)) + (name.size() > 200 ? "…\"" : "\"");
}

// The name without ".", "//" and the trailing slash; refuses what could leave the target directory.
Result<std::string> CleanName(std::string_view raw) {
  if (raw.empty()) return Bad("archive: entry without a name");
  if (raw.find('\0') != std::string_view::npos) return Bad("archive: NUL in the name " + Quote(UntilNul(raw)));
  if (raw.size() > kMaxTarName) return Bad("archive: name too long: " + Quote(raw));
  if (raw[0] == '/') return Bad("archive: absolute name " + Quote(raw));
  std::string out;
  while (!raw.empty()) {
    size_t slash = std::min(raw.find('/'), raw.size());
    auto part = raw.substr(0, slash);
    raw.remove_prefix(std::min(slash + 1, raw.size()));
    if (part.empty() || part == ".") continue;
    if (part == "..") return Bad("archive: \"..\" in the name of an entry: " + Quote(out + "/.."));
    if (part.size() > 255) return Bad("archive: name too long: " + Quote(part));
    if (!out.empty()) out += '/';
    out += part;
  }
  return out;
}

const char* KindOf(char type) {
  switch (type) {
    case '1':
      return "hard link";
    case '2':
      return "symbolic link";
    case '3':
    case '4':
      return "device";
    case '6':
      return "FIFO";
    default:
      return "entry of unsupported type";
  }
}

}  // namespace

Result<> TarReader::Feed(std::string_view bytes) {
  while (!bytes.empty() && state_ != State::kEnd) {
    if (state_ == State::kHeader) {
      size_t n = std::min(bytes.size(), kTarBlock - filled_);
      std::memcpy(block_.data() + filled_, bytes.data(), n);
      filled_ += n;
      bytes.remove_prefix(n);
      if (filled_ < kTarBlock) break;
      filled_ = 0;
      SB_TRYV(OnBlock());
      continue;
    }
    auto part = bytes.substr(0, std::min<uint64_t>(bytes.size(), left_));
    bytes.remove_prefix(part.size());
    left_ -= part.size();
    if (state_ == State::kExtension) extension_.append(part);
    if (state_ == State::kFile) SB_TRYV(sink_->OnData(part));
    if (left_ > 0) break;
    if (state_ == State::kPadding) {
      state_ = after_padding_;
    } else if (state_ == State::kExtension) {
      SB_TRYV(EndExtension());
    } else {
      SB_TRYV(sink_->OnEntryEnd());
      Pad(body_size_, State::kHeader);
    }
  }
  return {};
}

Result<> TarReader::Finish() {
  if (state_ == State::kEnd) return {};
  return Bad("archive: truncated");
}

Result<> TarReader::OnBlock() {
  if (AllZero(block_)) {
    // One zero block ends the archive here: what follows (a second one, record padding) carries nothing.
    if (!long_name_.empty() || !long_target_.empty() || has_size_ || has_mtime_)
      return Bad("archive: extension without an entry");
    state_ = State::kEnd;
    return {};
  }
  return OnHeader();
}

Result<> TarReader::OnHeader() {
  if (!ChecksumHolds(block_)) return Bad("archive: header checksum is wrong");
  if (At(block_, kMagic).substr(0, 5) != "ustar") return Bad("archive: not a ustar header");
  SB_TRY(uint64_t size, Number(At(block_, kSize)));
  char type = block_[kTypeAt];
  if (type == 'x' || type == 'g' || type == 'L' || type == 'K') return BeginExtension(type, size);
  return BeginEntry(type, size);
}

Result<> TarReader::BeginExtension(char type, uint64_t size) {
  if (size == 0 || size > kMaxTarExtension) return Bad("archive: extension record of unreasonable size");
  extension_type_ = type;
  extension_.clear();
  left_ = size;
  state_ = State::kExtension;
  return {};
}

Result<> TarReader::EndExtension() {
  uint64_t size = extension_.size();
  if (extension_type_ == 'x') SB_TRYV(ParsePax());
  if (extension_type_ == 'L') {
    long_name_ = UntilNul(extension_);
    if (long_name_.empty()) return Bad("archive: empty long name");
  }
  if (extension_type_ == 'K') {
    long_target_ = UntilNul(extension_);
    if (long_target_.empty()) return Bad("archive: empty long target");
  }
  // 'g' holds nothing that we use.
  extension_.clear();
  Pad(size, State::kHeader);
  return {};
}

// Records "<length> <key>=<value>\n", the length counting itself.
Result<> TarReader::ParsePax() {
  std::string_view in = extension_;
  while (!in.empty()) {
    size_t length = 0;
    auto [end, ec] = std::from_chars(in.data(), in.data() + in.size(), length);
    auto digits = static_cast<size_t>(end - in.data());
    if (ec != std::errc() || digits == 0 || length > in.size() || length < digits + 3 || in[digits] != ' ' ||
        in[length - 1] != '\n')
      return Bad("archive: malformed pax record");
    auto record = in.substr(digits + 1, length - digits - 2);
    in.remove_prefix(length);
    size_t eq = record.find('=');
    if (eq == std::string_view::npos || eq == 0) return Bad("archive: malformed pax record");
    SB_TRYV(TakeRecord(record.substr(0, eq), record.substr(eq + 1)));
  }
  return {};
}

Result<> TarReader::TakeRecord(std::string_view key, std::string_view value) {
  const char* end = value.data() + value.size();
  if (key.starts_with("GNU.sparse")) return Bad("archive: sparse entries are not supported");
  if (key == "path" || key == "linkpath") {
    if (value.empty()) return Bad("archive: empty pax path");
    (key == "path" ? long_name_ : long_target_) = value;
  }
  if (key == "size") {
    auto [last, err] = std::from_chars(value.data(), end, pax_size_);
    if (err != std::errc() || last != end) return Bad("archive: malformed pax size");
    has_size_ = true;
  }
  if (key == "mtime") {
    // Parts of a second may follow; whole ones are enough.
    auto [last, err] = std::from_chars(value.data(), end, pax_mtime_);
    if (err != std::errc() || (last != end && *last != '.')) return Bad("archive: malformed pax mtime");
    has_mtime_ = true;
  }
  return {};
}

Result<> TarReader::BeginEntry(char type, uint64_t size) {
  std::string raw(UntilNul(At(block_, kName)));
  // GNU headers ("ustar  ") use the prefix bytes for other things.
  bool posix = At(block_, kMagic)[5] == '\0';
  if (auto prefix = UntilNul(At(block_, kPrefix)); posix && !prefix.empty()) raw = std::string(prefix) + "/" + raw;
  if (!long_name_.empty()) raw = std::exchange(long_name_, {});
  std::string target = std::exchange(long_target_, {});
  if (target.empty()) target = UntilNul(At(block_, kLink));
  if (has_size_) size = pax_size_;
  has_size_ = false;
  const bool file = type == '0' || type == '\0' || type == '7', link = type == '2' && takes_.symlinks;
  const bool other = !file && !link && type != '5';
  const bool bare = type >= '1' && type <= '6' && type != '5';  // has no contents, whatever its size says
  if (other && !takes_.others)
    return Bad(std::string("archive: ") + KindOf(type) + " " + Quote(raw) + " is not allowed");
  SB_TRY(uint64_t mode, Number(At(block_, kMode)));
  TarEntry entry;
  entry.directory = type == '5' || (file && raw.ends_with('/'));
  if (link || other) entry.kind = link ? TarEntry::Kind::kSymlink : TarEntry::Kind::kOther;
  SB_TRY(entry.name, CleanName(raw));
  entry.mode = static_cast<uint32_t>(mode & 0777);
  entry.size = bare ? 0 : size;
  SB_TRYV(TakeTime(entry));
  if (link) {
    if (target.empty() || target.size() > kMaxTarName || target.contains('\0'))
      return Bad("archive: bad target of the link " + Quote(raw));
    entry.target = std::move(target);
  }
  if (entry.directory && size != 0) return Bad("archive: directory with contents: " + Quote(raw));
  if (!entry.directory && entry.name.empty()) return Bad("archive: file without a name: " + Quote(raw));
  if (entry.size > kMaxTarFile) return Bad("archive: entry too large: " + Quote(raw));
  SB_TRYV(sink_->OnEntry(entry));
  body_size_ = entry.size;
  left_ = entry.size;
  state_ = State::kFile;
  if (entry.size > 0) return {};
  SB_TRYV(sink_->OnEntryEnd());
  state_ = State::kHeader;
  return {};
}

Result<> TarReader::TakeTime(TarEntry& entry) {
  entry.mtime_given = std::exchange(has_mtime_, false);
  entry.mtime = pax_mtime_;
  if (entry.mtime_given) return {};
  // Writers put anything there, a time before 1970 among it: no time is better than a refusal.
  auto time = Number(At(block_, kMtime));
  entry.mtime = time && *time < kMaxTarFile ? static_cast<int64_t>(*time) : 0;
  return {};
}

void TarReader::Pad(uint64_t size, State then) {
  left_ = (kTarBlock - size % kTarBlock) % kTarBlock;
  state_ = left_ > 0 ? State::kPadding : then;
  after_padding_ = then;
}

namespace {

void PutOctal(std::array<char, kTarBlock>& block, Field f, uint64_t v) {
  for (size_t i = f.length - 1; i-- > 0; v >>= 3) block[f.at + i] = static_cast<char>('0' + (v & 7));
}

std::string HeaderBlock(std::string_view name, char type, uint32_t mode, uint64_t size, std::string_view target = {}) {
  std::array<char, kTarBlock> block{};
  std::memcpy(block.data() + kName.at, name.data(), std::min(name.size(), kName.length));
  PutOctal(block, kMode, mode);
  PutOctal(block, kUid, 0);
  PutOctal(block, kGid, 0);
  PutOctal(block, kSize, size);
  PutOctal(block, kMtime, 0);
  block[kTypeAt] = type;
  if (!target.empty()) std::memcpy(block.data() + kLink.at, target.data(), std::min(target.size(), kLink.length));
  std::memcpy(block.data() + kMagic.at, "ustar\0", kMagic.length);
  std::memcpy(block.data() + kVersion.at, "00", kVersion.length);
  std::memset(block.data() + kChecksum.at, ' ', kChecksum.length);
  uint64_t sum = 0;
  for (char c : block) sum += static_cast<uint8_t>(c);
  PutOctal(block, Field{kChecksum.at, 7}, sum);
  block[kChecksum.at + 6] = '\0';
  return {block.data(), block.size()};
}

std::string PaxRecord(std::string_view key, std::string_view value) {
  size_t body = key.size() + value.size() + 3;  // ' ', '=', '\n'
  size_t length = body + 1;
  while (body + std::to_string(length).size() != length) length = body + std::to_string(length).size();
  return std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
}

}  // namespace

std::string TarHeader(const TarEntry& entry) {
  constexpr uint64_t kMaxOctal = (1ULL << 33) - 1;
  const bool link = entry.kind == TarEntry::Kind::kSymlink;
  std::string name = entry.name + (entry.directory ? "/" : "");
  std::string pax;
  auto fits = [](const std::string& text) {
    return text.size() <= kName.length && std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
  };
  if (!fits(name)) pax += PaxRecord("path", name);
  if (link && !fits(entry.target)) pax += PaxRecord("linkpath", entry.target);
  if (entry.size > kMaxOctal) pax += PaxRecord("size", std::to_string(entry.size));
  if (entry.mtime_given) pax += PaxRecord("mtime", std::to_string(entry.mtime));
  std::string out;
  if (!pax.empty()) out = HeaderBlock("PaxHeader", 'x', 0644, pax.size()) + pax + TarPadding(pax.size());
  const char type = link ? '2' : entry.directory ? '5' : '0';
  return out + HeaderBlock(name, type, entry.mode, entry.size > kMaxOctal ? 0 : entry.size,
                           link ? std::string_view(entry.target) : std::string_view());
}

std::string TarPadding(uint64_t size) {
  return std::string((kTarBlock - size % kTarBlock) % kTarBlock, '\0');
}

std::string TarEnd() {
  return std::string(2 * kTarBlock, '\0');
}

}  // namespace sandbar::wire
