#include "llm/claude_tools.h"

#include <algorithm>

#include "client/api_client.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::llm {
namespace {

using client::Number;
using client::Object;
using client::Text;

constexpr size_t kMaxOutput = 100 << 10;
constexpr size_t kMaxFile = 256 << 10;
constexpr size_t kMaxFiles = 200;
constexpr size_t kMaxLine = 2000;
constexpr size_t kMaxListing = 4 << 20;
constexpr int64_t kDefaultTimeoutMs = 120'000;
constexpr int64_t kMaxTimeoutMs = 600'000;

ToolResult Said(std::string text, bool is_error = false) {
  ToolResult result;
  result.is_error = is_error;
  if (text.size() > kMaxOutput) {
    // The end is where the stack trace is.
    const size_t half = kMaxOutput / 2;
    const size_t gone = text.size() - 2 * half;
    text = text.substr(0, half) + "\n[" + std::to_string(gone) + " bytes left out]\n" + text.substr(text.size() - half);
  }
  result.parts.push_back({text.empty() ? "(no output)" : std::move(text), "", ""});
  return result;
}

ToolResult Wrong(std::string text) {
  return Said(std::move(text), true);
}

// What a tool may tell the model to mend; everything else means that the sandbox is gone.
bool IsMendable(Code code) {
  return code == Code::kNotFound || code == Code::kBadRequest || code == Code::kFileError || code == Code::kTooLarge ||
         code == Code::kExecutableNotFound || code == Code::kForbidden;
}

}  // namespace

std::string LinesOf(std::string_view text, int64_t from, int64_t to) {
  std::string out;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    ++number;
    if (number >= from && (to < 0 || number <= to)) out += text.substr(0, end + 1);
    text.remove_prefix(end + 1);
  }
  return out;
}

size_t ReplaceText(std::string* text, std::string_view from, std::string_view to) {
  size_t count = 0;
  for (size_t at = text->find(from); at != std::string::npos; at = text->find(from, at + to.size())) {
    text->replace(at, from.size(), to);
    ++count;
  }
  return count;
}

const ClaudeTools::Entry* ClaudeTools::Find(std::string_view name) {
  static constexpr Entry kTools[] = {{"bash", &ClaudeTools::Bash},   {"read", &ClaudeTools::Read},
                                     {"write", &ClaudeTools::Write}, {"edit", &ClaudeTools::Edit},
                                     {"glob", &ClaudeTools::Glob},   {"grep", &ClaudeTools::Grep}};
  const auto* it = std::ranges::find(kTools, name, &Entry::name);
  return it == std::end(kTools) ? nullptr : it;
}

bool ClaudeTools::Has(std::string_view name) {
  return Find(name) != nullptr;
}

Task<ToolResult> ClaudeTools::Call(ToolCall call) {
  const Entry* tool = Find(call.name);
  if (tool == nullptr) co_return Fail(Code::kInternal, "there is no tool " + call.name);
  Task<ToolResult> running = (this->*tool->run)(std::move(call.input));
  auto result = co_await std::move(running);
  if (!result && !IsMendable(result.error().code)) co_return std::unexpected(std::move(result).error());
  ToolResult said = result ? std::move(*result) : Wrong(call.name + ": " + result.error().message);
  said.id = call.id;
  co_return said;
}

// One shell for all calls: the sandbox's default bash context.
Task<ToolResult> ClaudeTools::Bash(json::object input) {
  const std::string command = Text(input, "command");
  const json::value* restart = input.if_contains("restart");
  if (restart != nullptr && *restart == json::value(true)) {
    std::string path = "/x/v1/sandboxes/" + wire::EncodeComponent(box_.name) + "/contexts/bash/restart";
    auto done = co_await api_->Call("POST", std::move(path), std::nullopt);
    if (!done && done.error().code != Code::kNotFound) co_return std::unexpected(std::move(done).error());
    if (command.empty()) co_return Said("bash session restarted");
  }
  if (command.empty()) co_return Wrong("bash: command is required");
  const int64_t asked = Number(input, "timeout_ms");
  const int64_t timeout = asked > 0 ? std::min(asked, kMaxTimeoutMs) : kDefaultTimeoutMs;
  std::string code = command;
  co_return co_await RunCell(std::move(code), timeout);
}

Task<ToolResult> ClaudeTools::RunCell(std::string code, int64_t timeout_ms) {
  json::object body{{"language", "bash"}, {"code", std::move(code)}, {"timeoutMs", timeout_ms}};
  std::string path = "/x/v1/sandboxes/" + wire::EncodeComponent(box_.name) + "/code";
  http::ClientRequest request = api_->Request("POST", path, wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api_->Open(std::move(request)));
  client::NdjsonReader lines(response.get());
  std::string output;
  json::object end;
  while (true) {
    SB_CO_TRY(auto event, co_await lines.Next());
    if (!event) break;
    const std::string type = Text(*event, "type");
    // The server caps it; this is for a server that does not.
    if ((type == "stdout" || type == "stderr") && output.size() < kMaxListing) output += Text(*event, "text");
    if (type == "error" && Text(*event, "name") == "SandbarError") output += Text(*event, "value") + "\n";
    if (type == "end") end = std::move(*event);
  }
  const std::string status = Text(end, "status");
  if (status.empty()) co_return Fail(Code::kClosed, "the output ended before the command did: the sandbox is gone");
  if (status == "ok") co_return Said(std::move(output));
  if (status == "error") co_return Wrong(output + "[exit code " + std::to_string(Number(end, "exitCode")) + "]");
  if (status == "timeout") co_return Wrong(output + "[timed out after " + std::to_string(timeout_ms) + " ms]");
  co_return Wrong(output + "[" + status + "; the shell begins anew]");
}

Task<ToolResult> ClaudeTools::Read(json::object input) {
  std::string path = Text(input, "file_path");
  if (path.empty()) co_return Wrong("read: file_path is required");
  SB_CO_TRY(std::string text, co_await ReadFileIn(api_, box_, std::move(path), kMaxFile));
  const json::value* range = input.if_contains("view_range");
  if (range == nullptr || !range->is_array()) co_return Said(std::move(text));
  const json::array& pair = range->get_array();
  if (pair.size() != 2 || !pair[0].is_int64() || !pair[1].is_int64())
    co_return Wrong("read: view_range is [first line, last line]");
  co_return Said(LinesOf(text, pair[0].get_int64(), pair[1].get_int64()));
}

Task<ToolResult> ClaudeTools::Write(json::object input) {
  const std::string path = Text(input, "file_path");
  const json::value* content = input.if_contains("content");
  if (path.empty()) co_return Wrong("write: file_path is required");
  if (content == nullptr || !content->is_string()) co_return Wrong("write: content is required");
  std::string text(content->get_string());
  const size_t size = text.size();
  std::vector<client::TarItem> files;
  files.push_back({path, "", std::move(text)});
  SB_CO_TRYV(co_await WriteFiles(api_, box_, std::move(files)));
  co_return Said("wrote " + std::to_string(size) + " bytes to " + path);
}

Task<ToolResult> ClaudeTools::Edit(json::object input) {
  const std::string path = Text(input, "file_path");
  const std::string from = Text(input, "old_string");
  const std::string to = Text(input, "new_string");
  if (path.empty() || from.empty()) co_return Wrong("edit: file_path and old_string are required");
  std::string copy = path;
  SB_CO_TRY(std::string text, co_await ReadFileIn(api_, box_, std::move(copy), kMaxFile));
  const size_t first = text.find(from);
  if (first == std::string::npos) co_return Wrong("edit: old_string is not in " + path);
  const json::value* all = input.if_contains("replace_all");
  const bool replace_all = all != nullptr && *all == json::value(true);
  if (!replace_all && text.find(from, first + 1) != std::string::npos)
    co_return Wrong("edit: old_string is in " + path + " more than once; make it longer, or set replace_all");
  const size_t count = ReplaceText(&text, from, to);
  std::vector<client::TarItem> files;
  files.push_back({path, "", std::move(text)});
  SB_CO_TRYV(co_await WriteFiles(api_, box_, std::move(files)));
  co_return Said("replaced " + std::to_string(count) + " in " + path);
}

// Newest first. Names come one per NUL: a name may have any other byte.
Task<ToolResult> ClaudeTools::Glob(json::object input) {
  const std::string pattern = Text(input, "pattern");
  if (pattern.empty() || pattern.starts_with('/')) co_return Wrong("glob: a relative pattern is required");
  std::string path = Text(input, "path");
  if (path.empty()) path = ".";
  const std::string script =
      R"(cd -- "$1" && find . -name .git -prune -o -type f -printf '%T@ %P\0' | sort -z -rn | tr '\0\n' '\n ')";
  std::vector<std::string> argv{"sh", "-c", script, "sh", path};
  SB_CO_TRY(Ran ran, co_await RunIn(api_, box_, std::move(argv), kDefaultTimeoutMs, kMaxListing));
  if (ran.exit_code != 0) co_return Wrong("glob: " + ran.err);
  std::string out;
  size_t found = 0;
  std::string_view rest = ran.out;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1);
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos || !GlobMatches(pattern, line.substr(blank + 1))) continue;
    if (++found <= kMaxFiles) out += std::string(line.substr(blank + 1)) + "\n";
  }
  if (found == 0) co_return Said("no files match");
  if (found > kMaxFiles) out += "[" + std::to_string(found - kMaxFiles) + " more]\n";
  co_return Said(std::move(out));
}

Task<ToolResult> ClaudeTools::Grep(json::object input) {
  const std::string pattern = Text(input, "pattern");
  if (pattern.empty()) co_return Wrong("grep: pattern is required");
  std::string path = Text(input, "path");
  if (path.empty()) path = ".";
  std::vector<std::string> argv{"grep", "-rnIE", "--exclude-dir=.git", "-e", pattern, "--", path};
  SB_CO_TRY(Ran ran, co_await RunIn(api_, box_, std::move(argv), kDefaultTimeoutMs, kMaxListing));
  if (ran.exit_code > 1 && ran.out.empty()) co_return Wrong("grep: " + ran.err);
  std::string out;
  std::string_view rest = ran.out;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1);
    out += rest.substr(0, std::min(end, kMaxLine));
    out += "\n";
    rest.remove_prefix(end + 1);
  }
  co_return Said(out.empty() ? "no matches" : std::move(out));
}

}  // namespace sandbar::llm
