#include "egress/bounded_pattern.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace sandbar::egress {

namespace {

// Holds a program of kMaxProgram instructions, its reverse and a small cache of states.
constexpr int64_t kMemory = 256 << 10;
constexpr size_t kUnicodeClass = 250;
constexpr size_t kMostRepeats = 1000;  // RE2 refuses more in one repetition

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// The larger number of "{n}", "{n,}" or "{n,m}" at the beginning of `text`; 0 when there is none.
size_t Repeats(std::string_view text) {
  size_t most = 0;
  size_t number = 0;
  for (char c : text.substr(1)) {
    if (IsDigit(c)) {
      number = std::min(number * 10 + static_cast<size_t>(c - '0'), kMostRepeats);
    } else if (c == ',' || c == '}') {
      most = std::max(most, number);
      number = 0;
      if (c == '}') return most;
    } else {
      return 0;
    }
  }
  return 0;
}

re2::StringPiece Piece(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

size_t BoundedPattern::Effort(std::string_view text) {
  size_t effort = text.size();
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] == '{') effort += Repeats(text.substr(i));
    if (text[i] == '\\' && (text[i + 1] == 'p' || text[i + 1] == 'P')) effort += kUnicodeClass;
  }
  return effort;
}

Result<BoundedPattern> BoundedPattern::Compile(const std::string& text, bool ignore_case) {
  if (text.size() > kMaxBytes) {
    return Fail(Code::kBadRequest,
                fmt::format("is a regular expression of {} bytes; at most {} are allowed", text.size(), kMaxBytes));
  }
  // Estimated before RE2 reads it: it writes every repetition out before it looks at its own limit.
  if (Effort(text) > kMaxEffort) {
    return Fail(
        Code::kBadRequest,
        fmt::format("is too large a regular expression: use fewer or smaller repetitions ({{n,m}}, {} together) "
                    "and fewer Unicode classes (\\p)",
                    kMaxEffort));
  }
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMemory);
  options.set_case_sensitive(!ignore_case);
  auto regex = std::make_shared<re2::RE2>(text, options);
  if (!regex->ok()) return Fail(Code::kBadRequest, "is not a regular expression (RE2): " + regex->error());
  // RE2 searches backwards too, with a program of its own. -1: that one is larger than the memory allows.
  const int forward = regex->ProgramSize();
  const int backward = regex->ReverseProgramSize();
  const int size = std::max(forward, backward);
  if (backward < 0 || static_cast<size_t>(size) > kMaxProgram) {
    return Fail(Code::kBadRequest,
                fmt::format("is too large a regular expression: it has {} instructions, at most {} are allowed; "
                            "use smaller repetitions and classes, or several rules",
                            size, kMaxProgram));
  }
  return BoundedPattern(std::move(regex), static_cast<size_t>(size));
}

int BoundedPattern::groups() const {
  return regex_->NumberOfCapturingGroups();
}

bool BoundedPattern::Finds(std::string_view text) const {
  return re2::RE2::PartialMatch(Piece(text), *regex_);
}

std::optional<BoundedPattern::Match> BoundedPattern::FindFirst(std::string_view text) const {
  std::array<re2::StringPiece, 2> found;
  const int wanted = groups() > 0 ? 2 : 1;
  if (!regex_->Match(Piece(text), 0, text.size(), re2::RE2::UNANCHORED, found.data(), wanted)) return std::nullopt;
  Match out;
  out.whole = {found[0].data(), found[0].size()};
  out.group = out.whole;
  if (wanted == 2) out.group = {found[1].data(), found[1].size()};
  return out;
}

}  // namespace sandbar::egress
