#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace sandbar {
namespace {

struct Range {
  char32_t first, last;
};
// Unicode's categories Cf, Zl, Zp, private and unassigned planes of tags, and fillers that look like nothing.
constexpr Range kUnprintable[] = {{0x00, 0x1F},       {0x7F, 0x9F},       {0xAD, 0xAD},       {0x34F, 0x34F},
                                  {0x600, 0x605},     {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},
                                  {0x890, 0x891},     {0x8E2, 0x8E2},     {0x115F, 0x1160},   {0x17B4, 0x17B5},
                                  {0x180B, 0x180F},   {0x200B, 0x200F},   {0x2028, 0x202E},   {0x2060, 0x206F},
                                  {0x3164, 0x3164},   {0xFDD0, 0xFDEF},   {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},
                                  {0xFFF0, 0xFFFB},   {0xFFFE, 0xFFFF},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD},
                                  {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0x10FFFF}};

// The bytes of the character that the text begins with; 0 when they are none.
size_t Decode(std::string_view text, char32_t* out) {
  const auto first = static_cast<unsigned char>(text[0]);
  *out = first;
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 && first <= 0xF4  ? 4
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xC2 && first < 0xE0 ? 2
                                                        : 0;
  if (length == 0 || text.size() < length) return 0;
  *out = first & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0) != 0x80) return 0;
    *out = *out << 6 | (byte & 0x3FU);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = *out >= 0xD800 && *out <= 0xDFFF;
  return *out < kSmallest[length] || *out > 0x10FFFF || surrogate ? 0 : length;
}

std::string Escape(std::string_view text, bool lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    char32_t c = 0;
    size_t length = Decode(text, &c);
    if (length == 0) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[0]));
      length = 1;
    } else if (IsPrintable(c) || (lines && (c == '\n' || c == '\t'))) {
      out += text.substr(0, length);
    } else if (c < 0x80) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned>(c));
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{{{:x}}}", static_cast<unsigned>(c));
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace

bool IsPrintable(char32_t c) {
  return std::ranges::none_of(kUnprintable, [c](const Range& r) { return c >= r.first && c <= r.last; });
}

std::string Printable(std::string_view text) {
  return Escape(text, false);
}

std::string PrintableLines(std::string_view text) {
  return Escape(text, true);
}

}  // namespace sandbar
