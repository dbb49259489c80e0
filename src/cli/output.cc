#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <cstdlib>

#include "base/engine_table.h"
#include "base/files.h"
#include "cli/called.h"
#include "wire/ndjson.h"

namespace sandbar::cli {
namespace {

// Separates what happened from its fix inside a message; never part of either.
constexpr std::string_view kFixMark = "\n  fix: ";

// Columns on screen: bytes that do not continue a UTF-8 character.
size_t Width(std::string_view s) {
  return static_cast<size_t>(
      std::ranges::count_if(s, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Whoever chose the text, no line of it looks like one that we begin.
std::string Indented(std::string_view text) {
  std::string out = PrintableLines(text);
  for (size_t at = out.find('\n'); at != std::string::npos; at = out.find('\n', at + 1))
    if (!std::string_view(out).substr(at + 1).starts_with("  ")) out.insert(at + 1, "  ");
  return out;
}

// The words of the API where it has one.
const char* CodeName(Code code) {
  switch (code) {
    case Code::kBadRequest:
      return "bad_request";
    case Code::kExecutableNotFound:
      return "executable_not_found";
    case Code::kUnauthenticated:
      return "unauthorized";
    case Code::kForbidden:
      return "forbidden";
    case Code::kNotFound:
      return "not_found";
    case Code::kConflict:
      return "conflict";
    case Code::kStopped:
      return "sandbox_stopped";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kTooMany:
      return "too_many_requests";
    case Code::kQuota:
      return "quota_exceeded";
    case Code::kNoSpace:
      return "insufficient_storage";
    case Code::kUnavailable:
      return "service_unavailable";
    default:
      return "failed";
  }
}

}  // namespace

Result<> WriteAll(int fd, std::string_view bytes) {
  auto written = sandbar::WriteAll(fd, bytes);
  if (!written && written.error().sys_errno == EPIPE)
    return Fail(Code::kClosed, Cause::kOutputClosed, "the reader of our output is gone");
  return written;
}

Result<> Out(std::string_view lines) {
  return WriteAll(1, PrintableLines(lines));
}

// Best effort, here and below: when stderr is gone there is nobody to tell.
void Remark(std::string_view lines) {
  static_cast<void>(WriteAll(2, PrintableLines(lines)));
}

void Note(std::string_view line) {
  static_cast<void>(WriteAll(2, fmt::format("sandbar: {}\n", Indented(AsCalled(line)))));
}

void Note(Colour colour, std::string_view word, std::string_view rest) {
  static_cast<void>(WriteAll(2, fmt::format("sandbar: {}{}\n", Paint(2, colour, word), Indented(AsCalled(rest)))));
}

void Complain(const Error& error, bool as_json) {
  if (as_json) {
    const std::string text = AsCalled(error.message);
    const size_t at = text.find(kFixMark);
    boost::json::object inner{{"code", CodeName(error.code)}, {"message", text.substr(0, at)}};
    if (at != std::string::npos) inner["fix"] = text.substr(at + kFixMark.size());
    boost::json::object line{{"error", std::move(inner)}};
    static_cast<void>(WriteAll(2, wire::NdjsonLine(line)));
    return;
  }
  Note(Colour::kRed, "error: ", error.message);
}

std::unexpected<Error> FailWithFix(Code code, const std::string& what, const std::string& fix) {
  return Fail(code, what + std::string(kFixMark) + fix);
}

std::unexpected<Error> FailNeedsRoot(const std::string& what, const std::string& fix) {
  return Fail(Code::kForbidden, Cause::kNeedsRoot, what + std::string(kFixMark) + fix);
}

std::string Table(const std::vector<std::vector<std::string>>& cells) {
  std::vector<std::vector<std::string>> rows = cells;
  for (auto& row : rows)
    for (std::string& cell : row) cell = Printable(cell);
  std::vector<size_t> width;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == width.size()) width.push_back(0);
      width[i] = std::max(width[i], Width(row[i]));
    }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out.append(width[i] - Width(row[i]) + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

std::string Age(int64_t ms_ago) {
  int64_t s = std::max<int64_t>(ms_ago, 0) / 1000;
  if (s < 120) return fmt::format("{} s", s);
  if (s < 7200) return fmt::format("{} min", s / 60);
  if (s < 172'800) return fmt::format("{} h", s / 3600);
  return fmt::format("{} d", s / 86'400);
}

std::string Bytes(uint64_t n) {
  if (n < 1000) return fmt::format("{} B", n);
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB"};
  double value = static_cast<double>(n) / 1000;
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string_view Boundary(std::string_view engine) {
  const EngineTraits* known = FindEngine(engine);
  return known != nullptr ? known->boundary : "unknown to this program";
}

std::string ShellQuote(std::string_view s) {
  std::string out = "'";
  for (char c : s) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string ShellWord(std::string_view s) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=";
  return !s.empty() && s.find_first_not_of(kPlain) == std::string_view::npos ? std::string(s) : ShellQuote(s);
}

std::string Paint(int fd, Colour colour, std::string_view text) {
  const char* off = std::getenv("NO_COLOR");
  if ((off != nullptr && *off != '\0') || ::isatty(fd) == 0) return std::string(text);
  int code = 0;
  switch (colour) {
    case Colour::kGreen:
      code = 32;
      break;
    case Colour::kYellow:
      code = 33;
      break;
    case Colour::kRed:
      code = 31;
      break;
  }
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

}  // namespace sandbar::cli
