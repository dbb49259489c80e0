// The command line's voice: data on stdout, everything else on stderr, colour only on a terminal without NO_COLOR.
// Writes are complete or fail; a closed stdout (`| head`) is kClosed, so that callers can stop their sandbox and leave.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbar::cli {

Result<> WriteAll(int fd, std::string_view bytes);
inline Result<> Out(std::string_view bytes) {
  return WriteAll(1, bytes);
}
// A remark for the human: "sandbar: <line>\n" on stderr.
void Note(std::string_view line);
// What failed, why, and a command that mends it.
// With `as_json`: {"error":{"code","message"[,"fix"]}} on one line.
void Complain(const Error& error, bool as_json = false);
// An error whose message carries a copyable fix; Complain prints it on a line of its own.
std::unexpected<Error> FailWithFix(Code code, const std::string& what, const std::string& fix);

// Left-aligned columns, two spaces apart. The first row is the heading.
std::string Table(const std::vector<std::vector<std::string>>& rows);

std::string Age(int64_t ms_ago);  // "12 s", "5 min", "3 h", "2 d"
std::string Bytes(uint64_t n);    // "512 B", "1.5 MB"
// For a POSIX shell.
std::string ShellQuote(std::string_view s);

// What stands between a guest of this engine and the host's kernel, in a few words.
std::string_view Boundary(std::string_view engine);

enum class Colour { kGreen, kYellow, kRed };
std::string Paint(int fd, Colour colour, std::string_view text);

}  // namespace sandbar::cli
