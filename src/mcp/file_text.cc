#include "mcp/file_text.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "mcp/output.h"
#include "wire/tar.h"

namespace sandbar::mcp {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n";
constexpr size_t kSniff = 8192;

std::string Gzip(std::string_view plain) {
  z_stream zip{};
  // 15 + 16: a gzip wrapper. Level 1: it goes through a local socket only.
  SB_CHECK(::deflateInit2(&zip, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(::deflateBound(&zip, plain.size()), '\0');
  zip.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  zip.avail_in = static_cast<uInt>(plain.size());
  zip.next_out = reinterpret_cast<Bytef*>(out.data());
  zip.avail_out = static_cast<uInt>(out.size());
  const int done = ::deflate(&zip, Z_FINISH);
  out.resize(zip.total_out);
  ::deflateEnd(&zip);
  SB_CHECK(done == Z_STREAM_END);
  return out;
}

uint32_t BigEndian(std::string_view bytes) {
  uint32_t n = 0;
  for (char c : bytes.substr(0, 4)) n = n << 8 | static_cast<unsigned char>(c);
  return n;
}

}  // namespace

std::string_view ImageType(std::string_view bytes) {
  if (bytes.starts_with(kPng)) return "image/png";
  if (bytes.starts_with("\xff\xd8\xff")) return "image/jpeg";
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) return "image/gif";
  if (bytes.starts_with("RIFF") && bytes.size() >= 12 && bytes.substr(8, 4) == "WEBP") return "image/webp";
  return "";
}

std::optional<ImageSize> PngSize(std::string_view bytes) {
  if (!bytes.starts_with(kPng) || bytes.size() < 24) return std::nullopt;
  return ImageSize{BigEndian(bytes.substr(16)), BigEndian(bytes.substr(20))};
}

bool LooksBinary(std::string_view bytes) {
  return bytes.substr(0, kSniff).contains('\0');
}

bool LineRange::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (full_) return false;
    if (line_ >= offset_ && line_ - offset_ >= limit_) {
      more_ = true;
      return false;
    }
    const size_t end = bytes.find('\n');
    std::string_view piece = bytes.substr(0, end == std::string_view::npos ? end : end + 1);
    bytes.remove_prefix(piece.size());
    if (line_ >= offset_) {
      any_ = true;
      const size_t n = std::min(piece.size(), cap_ - text_.size());
      text_.append(piece.substr(0, n));
      full_ = n < piece.size();
    }
    open_ = end == std::string_view::npos;
    if (!open_ && !full_) ++line_;
  }
  return true;
}

std::string LineRange::Render() const {
  if (!any_) {
    if (offset_ == 1) return "(empty file)";
    return fmt::format("(no line {}: the file has {} lines)", offset_, open_ ? line_ : line_ - 1);
  }
  std::string out = CutText(text_, text_.size());
  if (full_) {
    if (!out.ends_with('\n')) out += '\n';
    out += fmt::format("[… cut in line {} after {} bytes; go on with offset {}, or use run_command for long lines]",
                       line_, text_.size(), line_);
  } else if (more_) {
    out += fmt::format("[… more lines; go on with offset {}]", line_);
  }
  return out;
}

Result<Replaced> ReplaceExact(const std::string& text, const std::string& from, const std::string& to, bool all) {
  if (from.empty()) return Fail(Code::kBadRequest, "oldString: must not be empty; write_file makes new files");
  if (from == to) return Fail(Code::kBadRequest, "newString: is the same as oldString");
  Replaced out;
  // Not std::string::find, which is quadratic where both repeat themselves.
  auto find = [&](size_t at) -> const char* {
    return static_cast<const char*>(::memmem(text.data() + at, text.size() - at, from.data(), from.size()));
  };
  size_t at = 0;
  while (const char* found = find(at)) {
    const auto next = static_cast<size_t>(found - text.data());
    if (out.count++ == 0)
      out.first_line =
          1 + static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(next), '\n'));
    out.text += std::string_view(text).substr(at, next - at);
    out.text += to;
    at = next + from.size();
  }
  out.text += std::string_view(text).substr(at);
  if (out.count == 0)
    return Fail(Code::kBadRequest, "oldString: occurs 0 times; it must match the file exactly, blanks included");
  if (out.count > 1 && !all)
    return Fail(Code::kBadRequest,
                fmt::format("oldString: occurs {} times; add text around it, or set replaceAll", out.count));
  return out;
}

std::string ArchiveOf(const std::string& name, uint32_t mode, std::string_view content) {
  wire::TarEntry entry;
  entry.name = name;
  entry.mode = mode;
  entry.size = content.size();
  std::string tar = wire::TarHeader(entry);
  tar += content;
  tar += wire::TarPadding(content.size());
  tar += wire::TarEnd();
  return Gzip(tar);
}

}  // namespace sandbar::mcp
