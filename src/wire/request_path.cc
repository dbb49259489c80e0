#include "wire/request_path.h"

#include <algorithm>

#include "wire/percent.h"

namespace sandbar::wire {

namespace {

constexpr int kMaxDecodings = 3;

bool IsUnreserved(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("-._~").contains(c);
}

// The byte of the escape at `in[at]`, which is a '%'; -1 when it is none.
int Escaped(std::string_view in, size_t at) {
  const int high = at + 1 < in.size() ? HexDigit(in[at + 1]) : -1;
  const int low = at + 2 < in.size() ? HexDigit(in[at + 2]) : -1;
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Decodes every escape whose byte `keep` does not want escaped; those stay, in upper case.
template <class Keep>
Result<std::string> DecodeExcept(std::string_view in, Keep keep) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] != '%') {
      out.push_back(in[i]);
      continue;
    }
    const int value = Escaped(in, i);
    if (value <= 0) return Fail(Code::kBadRequest, "bad percent-escape in the path");
    i += 2;
    if (keep(static_cast<char>(value))) {
      const auto byte = static_cast<size_t>(value);
      out.append({'%', kDigits[byte / 16], kDigits[byte % 16]});
    } else {
      out.push_back(static_cast<char>(value));
    }
  }
  return out;
}

// Decodes every escape; what is none stays as it is.
std::string DecodeOnce(std::string_view in) {
  std::string out;
  for (size_t i = 0; i < in.size(); ++i) {
    const int value = in[i] == '%' ? Escaped(in, i) : -1;
    out.push_back(value < 0 ? in[i] : static_cast<char>(value));
    if (value >= 0) i += 2;
  }
  return out;
}

// RFC 3986, 5.2.4, on a path that begins with '/'. `merge` also drops empty segments.
std::string WithoutDots(std::string_view path, bool merge) {
  std::vector<std::string_view> kept;
  bool directory = false;
  while (!path.empty()) {
    path.remove_prefix(1);
    std::string_view segment = path.substr(0, path.find('/'));
    path.remove_prefix(segment.size());
    directory = segment == "." || segment == ".." || segment.empty();
    if (segment == ".." && !kept.empty()) kept.pop_back();
    if (segment == "." || segment == ".." || (segment.empty() && (merge || path.empty()))) continue;
    kept.push_back(segment);
  }
  std::string out;
  for (std::string_view segment : kept) out.append("/").append(segment);
  if (directory || out.empty()) out.push_back('/');
  return out;
}

// "/a;v=1/b" -> "/a/b".
std::string WithoutParameters(std::string_view path) {
  std::string out;
  bool parameter = false;
  for (char c : path) {
    parameter = c != '/' && (parameter || c == ';');
    if (!parameter) out.push_back(c);
  }
  return out;
}

bool HasDotSegment(std::string_view path) {
  while (!path.empty()) {
    path.remove_prefix(1);
    std::string_view segment = path.substr(0, path.find('/'));
    path.remove_prefix(segment.size());
    segment = segment.substr(0, segment.find_first_of(";?#"));
    if (segment == "." || segment == "..") return true;
  }
  return false;
}

// An ASCII character in two or more bytes, which strict decoders refuse and lax ones take for that character.
bool HasOverlong(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const unsigned next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool continued = next >= 0x80 && next < 0xC0;
    if (continued && (lead == 0xC0 || lead == 0xC1 || (lead == 0xE0 && next < 0xA0) || (lead == 0xF0 && next < 0x90)))
      return true;
  }
  return false;
}

// Why nobody can tell how a server reads this; empty when there is no reason.
std::string Unforeseeable(std::string_view decoded) {
  auto control = [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; };
  if (HasDotSegment(decoded)) return "hides a dot segment (\".\" or \"..\") in escapes or parameters";
  if (decoded.contains('\\')) return "has a backslash, which some servers take for a slash";
  if (std::ranges::any_of(decoded, control)) return "has a control character";
  if (HasOverlong(decoded)) return "has overlong UTF-8";
  return {};
}

}  // namespace

Result<std::string> NormalizePath(std::string_view path) {
  SB_TRY(std::string decoded, DecodeExcept(path, [](char c) { return !IsUnreserved(c); }));
  return WithoutDots(decoded, false);
}

Result<std::vector<std::string>> ReadPath(std::string_view normalised) {
  std::vector<std::string> out;
  auto add = [&out](std::string reading) {
    if (std::ranges::find(out, reading) == out.end()) out.push_back(std::move(reading));
  };
  SB_TRY(std::string plain, DecodeExcept(normalised, [](char c) { return c == '/' || c == '\\'; }));
  add(std::move(plain));
  std::string decoded(normalised);
  for (int times = 0;; ++times) {
    if (std::string why = Unforeseeable(decoded); !why.empty()) return Fail(Code::kForbidden, std::move(why));
    add(WithoutDots(WithoutParameters(decoded), true));
    if (const size_t end = decoded.find_first_of("?#"); end != std::string::npos && end > 0)
      add(WithoutDots(WithoutParameters(std::string_view(decoded).substr(0, end)), true));
    std::string next = DecodeOnce(decoded);
    if (next == decoded) return out;
    if (times == kMaxDecodings) return Fail(Code::kForbidden, "is escaped more than three times over");
    if (times > 0) add(next);
    decoded = std::move(next);
  }
}

}  // namespace sandbar::wire
