// The command line's voice: data on stdout, everything else on stderr, colour only on a terminal without NO_COLOR.
// Everything printed here passes base/printable.h, because names, errors and reasons can come from guests and archives.
// Only a command's own output is written unchanged, by WriteAll.
// Writes are complete or fail; a closed stdout (`| head`) is kClosed, so that callers can stop their sandbox and leave.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "base/result.h"

namespace sandbar::cli {

enum class Colour { kGreen, kYellow, kRed };

// As they are: for files, for programs, and for what a command in a sandbox has written.
Result<> WriteAll(int fd, std::string_view bytes);
// Lines for stdout. JSON of ours is ASCII and stays what it is.
Result<> Out(std::string_view lines);
// A remark for the human: "sandbar: <line>\n" on stderr.
void Note(std::string_view line);
// The same with a first word in colour.
void Note(Colour colour, std::string_view word, std::string_view rest);
// Lines on stderr without our name in front.
void Remark(std::string_view lines);
// What failed, why, and a command that mends it.
// With `as_json`: {"error":{"code","message"[,"fix"]}} on one line.
void Complain(const Error& error, bool as_json = false);
// An error whose message carries a copyable fix; Complain prints it on a line of its own.
std::unexpected<Error> FailWithFix(Code code, const std::string& what, const std::string& fix);
// The same for what only root may do; the exit code is then 2.
std::unexpected<Error> FailNeedsRoot(const std::string& what, const std::string& fix);

// Left-aligned columns, two spaces apart. The first row is the heading. A cell is one line, whatever is in it.
std::string Table(const std::vector<std::vector<std::string>>& rows);

std::string Age(int64_t ms_ago);  // "12 s", "5 min", "3 h", "2 d"
std::string Bytes(uint64_t n);    // "512 B", "1.5 MB"
// For a POSIX shell.
std::string ShellQuote(std::string_view s);
// The same, but plain words stay as they are.
std::string ShellWord(std::string_view s);

// What stands between a guest of this engine and the host's kernel, in a few words.
std::string_view Boundary(std::string_view engine);

std::string Paint(int fd, Colour colour, std::string_view text);

}  // namespace sandbar::cli
