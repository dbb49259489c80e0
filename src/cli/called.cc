#include "cli/called.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "cli/output.h"

namespace sandbar::cli {
namespace {

constexpr std::string_view kName = "sandbar ";

constexpr std::array<std::string_view, 41> kCommands = {
    "--help", "agent",  "attach",   "claude-worker", "code",  "cp",     "diff",    "doctor", "down", "env",   "eval",
    "exec",   "export", "fork",     "forward",       "image", "import", "inspect", "kernel", "key",  "login", "logs",
    "mcp",    "net",    "pause",    "promote",       "ps",    "race",   "restart", "resume", "rm",   "run",   "serve",
    "sh",     "skill",  "snapshot", "stop",          "token", "up",     "usage",   "version"};

std::string& Called() {
  static std::string called = "sandbar";
  return called;
}

bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

bool StartsWithCommand(std::string_view text) {
  const auto end = std::ranges::find_if_not(text, IsWord);
  return std::ranges::find(kCommands, text.substr(0, static_cast<size_t>(end - text.begin()))) != kCommands.end();
}

// Where the program's name begins, when the name at `at` is one that a shell would run; else npos.
size_t BeginOfCall(std::string_view text, size_t at) {
  if (at >= 2 && text.substr(at - 2, 2) == "./") at -= 2;
  const bool free = at == 0 || (!IsWord(text[at - 1]) && text[at - 1] != '/' && text[at - 1] != '.');
  return free ? at : std::string_view::npos;
}

}  // namespace

void SetCalledAs(std::string_view argv0) {
  const char* launcher = std::getenv("SANDBAR_CALLED");
  if (launcher != nullptr && *launcher != '\0') argv0 = launcher;
  if (!argv0.empty()) Called() = ShellWord(argv0);
}

std::string AsCalled(std::string_view text) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(kName); at != std::string_view::npos; at = text.find(kName, at + 1)) {
    const size_t begin = BeginOfCall(text, at);
    if (begin == std::string_view::npos || !StartsWithCommand(text.substr(at + kName.size()))) continue;
    out += text.substr(done, begin - done);
    out += Called();
    done = at + kName.size() - 1;
  }
  return out + std::string(text.substr(done));
}

}  // namespace sandbar::cli
