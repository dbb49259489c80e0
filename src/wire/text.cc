#include "wire/text.h"

#include <algorithm>

namespace sandbar::wire {

char AsciiLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string LowerCase(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = AsciiLower(c);
  return out;
}

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (AsciiLower(a[i]) != AsciiLower(b[i])) return false;
  return true;
}

std::string_view Trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

bool ListHasToken(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (EqualsIgnoreCase(Trim(list.substr(0, comma)), token)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  // Three rows: swapping two neighbours looks back two.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string_view Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  // A word of hostile length is no misspelling, and the distance costs its square.
  if (word.size() > 64) return {};
  std::string lower(word);
  std::ranges::transform(lower, lower.begin(), AsciiLower);
  std::string_view best;
  size_t best_distance = SIZE_MAX;
  for (const auto& candidate : candidates) {
    std::string other(candidate);
    std::ranges::transform(other, other.begin(), AsciiLower);
    const size_t distance = EditDistance(lower, other);
    if (distance < best_distance && distance <= std::max<size_t>(2, other.size() / 3) && distance < other.size()) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

namespace {

struct Utf8Lead {
  uint8_t length = 0;         // 0: not a lead byte
  uint8_t low = 0, high = 0;  // range of the second byte: excludes overlong forms, surrogates and > U+10FFFF
};

Utf8Lead LeadOf(uint8_t b) {
  if (b >= 0xc2 && b <= 0xdf) return {2, 0x80, 0xbf};
  if (b == 0xe0) return {3, 0xa0, 0xbf};
  if (b == 0xed) return {3, 0x80, 0x9f};
  if (b >= 0xe1 && b <= 0xef) return {3, 0x80, 0xbf};
  if (b == 0xf0) return {4, 0x90, 0xbf};
  if (b >= 0xf1 && b <= 0xf3) return {4, 0x80, 0xbf};
  if (b == 0xf4) return {4, 0x80, 0x8f};
  return {};
}

}  // namespace

Utf8Step DecodeUtf8(std::string_view s) {
  if (s.empty()) return {};
  const auto first = static_cast<uint8_t>(s[0]);
  if (first < 0x80) return {first, 1, true};
  const Utf8Lead lead = LeadOf(first);
  if (lead.length == 0) return {0xfffd, 1, false};
  char32_t code_point = first & (0x7f >> lead.length);
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (i >= s.size()) return {0xfffd, 0, false};
    const auto b = static_cast<uint8_t>(s[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xbf;
    if (b < low || b > high) return {0xfffd, i, false};
    code_point = (code_point << 6) | (b & 0x3f);
  }
  return {code_point, lead.length, true};
}

bool IsUtf8(std::string_view s) {
  while (!s.empty()) {
    const Utf8Step step = DecodeUtf8(s);
    if (!step.valid) return false;
    s.remove_prefix(step.length);
  }
  return true;
}

}  // namespace sandbar::wire
