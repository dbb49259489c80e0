// read_file, write_file, edit_file, list_files: as the sandbox's user, through the agent.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <filesystem>

#include "base/base64.h"
#include "base/printable.h"
#include "mcp/exec.h"
#include "mcp/file_text.h"
#include "mcp/open.h"
#include "mcp/output.h"
#include "wire/json_decode.h"

namespace sandbar::mcp {
namespace {

constexpr size_t kMaxEdited = 2 << 20;
constexpr size_t kMaxListing = 256 << 10;
constexpr size_t kMaxEntries = 500;
constexpr int64_t kDefaultLines = 2000;

constexpr wire::JsonAlias kPathAlias{"file_path", "path"};

struct ReadArgs {
  std::string path;
  std::optional<int64_t> offset, limit;
  static constexpr wire::JsonAlias kJsonAliases[] = {kPathAlias};
  void Check(wire::JsonIssues& issues) const {
    issues.Range("offset", offset, 1, INT64_MAX);
    issues.Range("limit", limit, 1, INT64_MAX);
  }
};
BOOST_DESCRIBE_STRUCT(ReadArgs, (), (path, offset, limit))

struct WriteArgs {
  std::string path, content;
  static constexpr wire::JsonAlias kJsonAliases[] = {kPathAlias};
};
BOOST_DESCRIBE_STRUCT(WriteArgs, (), (path, content))

struct EditArgs {
  std::string path, old_string, new_string;
  bool replace_all = false;
  static constexpr wire::JsonAlias kJsonAliases[] = {
      kPathAlias, {"old_string", "oldString"}, {"new_string", "newString"}, {"replace_all", "replaceAll"}};
};
BOOST_DESCRIBE_STRUCT(EditArgs, (), (path, old_string, new_string, replace_all))

struct ListArgs {
  std::optional<std::string> path;
  std::optional<int> depth;
  void Check(wire::JsonIssues& issues) const { issues.Range("depth", depth, 1, 10); }
};
BOOST_DESCRIBE_STRUCT(ListArgs, (), (path, depth))

// Absolute, without "." and "..", as seen from the sandbox's working directory.
Result<std::string> Absolute(const store::Session& session, const std::string& path) {
  if (path.empty() || path.size() > 4096) return Fail(Code::kBadRequest, "path: 1 to 4096 characters");
  std::string full = path;
  if (path == "~" || path.starts_with("~/"))
    full = session.home + path.substr(1);
  else if (!path.starts_with('/'))
    full = session.cwd + "/" + path;
  full = std::filesystem::path(full).lexically_normal().string();
  while (full.size() > 1 && full.ends_with('/')) full.pop_back();
  return full;
}

Task<std::unique_ptr<engine::FileStream>> OpenFile(const ToolCall* call, const Opened* opened, std::string path) {
  std::string session = opened->session.id;
  std::optional<std::string> cwd;
  co_return co_await call->connection->domain->files->Read(call->connection->scope, std::move(session), std::move(path),
                                                           std::move(cwd));
}

// The rest of a file after `bytes`; kTooLarge past the limit.
Task<std::string> ReadRest(engine::FileStream* file, std::string bytes, size_t limit) {
  while (true) {
    SB_CO_TRY(std::string piece, co_await file->Next());
    if (piece.empty()) co_return bytes;
    bytes += piece;
    if (bytes.size() > limit) co_return Fail(Code::kTooLarge, fmt::format("the file has more than {} bytes", limit));
  }
}

ToolResult ShowImage(const std::string& path, const std::string& bytes) {
  auto size = PngSize(bytes);
  if (size && (size->width > kMaxImageSide || size->height > kMaxImageSide))
    return TextResult(fmt::format("{}: an image of {} × {} pixels, more than the {} that can be shown; scale it down",
                                  path, size->width, size->height, kMaxImageSide));
  ToolResult result = TextResult(fmt::format("{}: {}, {} bytes", path, ImageType(bytes), bytes.size()));
  result.content.emplace_back(
      json::object{{"type", "image"}, {"data", EncodeBase64(bytes)}, {"mimeType", ImageType(bytes)}});
  return result;
}

Task<ToolResult> ReadText(engine::FileStream* file, std::string piece, LineRange lines) {
  while (!piece.empty() && lines.Feed(piece)) {
    SB_CO_TRY(piece, co_await file->Next());
  }
  co_return TextResult(lines.Render());
}

// An existing file keeps its mode: a script that was executable stays so.
Task<uint32_t> ModeOf(const ToolCall* call, const Opened* opened, std::string path) {
  std::vector<std::string> argv{"stat", "-L", "-c", "%a", "--", std::move(path)};
  std::string session = opened->session.id;
  SB_CO_TRY(Ran ran, co_await RunQuietly(call, std::move(session), std::move(argv), 4096));
  uint32_t mode = 0644;
  if (ran.exit_code == 0) std::from_chars(ran.out.data(), ran.out.data() + ran.out.size(), mode, 8);
  co_return mode & 0777;
}

Task<> CheckDirectory(const ToolCall* call, const Opened* opened, std::string path) {
  std::vector<std::string> argv{"stat", "-L", "-c", "%F", "--", path};
  std::string session = opened->session.id;
  SB_CO_TRY(Ran ran, co_await RunQuietly(call, std::move(session), std::move(argv), 4096));
  if (ran.exit_code == 0 && ran.out.starts_with("directory")) co_return Result<>{};
  co_return Fail(Code::kFileError, path + " is no directory; use read_file for files");
}

class TextSource : public engine::ByteSource {
 public:
  explicit TextSource(std::string bytes) : bytes_(std::move(bytes)) {}
  Task<std::string> Next() override { co_return std::exchange(bytes_, {}); }

 private:
  std::string bytes_;
};

Task<> Store(const ToolCall* call, const Opened* opened, std::string path, std::string content) {
  if (path == "/") co_return Fail(Code::kFileError, "path: is a directory");
  SB_CO_TRY(uint32_t mode, co_await ModeOf(call, opened, path));
  TextSource source(ArchiveOf(path.substr(1), mode, content));
  std::optional<std::string> root = "/";
  std::string session = opened->session.id;
  co_return co_await call->connection->domain->files->WriteTar(call->connection->scope, std::move(session),
                                                               std::move(root), &source);
}

ToolResult WithNote(ToolResult result, const std::string& note) {
  if (!note.empty()) result.content.emplace_back(json::object{{"type", "text"}, {"text", note}});
  return result;
}

struct Entry {
  std::string name;
  bool directory = false;
  std::string size;
};

// Lines "type|size|/path"; a line that is none belongs to the name before it, which has a line break in it.
std::vector<Entry> ParseListing(std::string_view text, const std::string& root) {
  std::vector<Entry> entries;
  const std::string prefix = root == "/" ? "/" : root + "/";
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const size_t a = line.find('|');
    const size_t b = a == std::string_view::npos ? a : line.find('|', a + 1);
    if (b == std::string_view::npos || !line.substr(b + 1).starts_with(prefix)) {
      if (!entries.empty()) entries.back().name += "?" + std::string(line);
      continue;
    }
    Entry entry{std::string(line.substr(b + 1 + prefix.size())), line.starts_with("directory"),
                std::string(line.substr(a + 1, b - a - 1))};
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, {}, &Entry::name);
  return entries;
}

std::string Listing(const std::string& root, const std::vector<Entry>& entries, bool cut) {
  std::string text = root + (entries.empty() ? ": empty" : ":") + "\n";
  const size_t shown = std::min(entries.size(), kMaxEntries);
  for (size_t i = 0; i < shown; ++i) {
    const std::string name = Printable(entries[i].name);
    text += entries[i].directory ? name + "/\n" : fmt::format("{}  {}\n", name, entries[i].size);
  }
  if (cut || shown < entries.size())
    text += fmt::format("[… only {} entries are shown; list a directory below, or with less depth]\n", shown);
  text.pop_back();
  return CutText(text, kTextCap);
}

}  // namespace

Task<ToolResult> ReadFile(ToolCall* call) {
  SB_CO_TRY(ReadArgs args, wire::DecodeValue<ReadArgs>(call->arguments));
  SB_CO_TRY(Opened opened, co_await OpenSandbox(call));
  SB_CO_TRY(std::string path, Absolute(opened.session, args.path));
  SB_CO_TRY(auto file, co_await OpenFile(call, &opened, path));
  SB_CO_TRY(std::string piece, co_await file->Next());
  if (!ImageType(piece).empty()) {
    auto whole = co_await ReadRest(file.get(), std::move(piece), kMaxImage);
    if (!whole) co_return std::unexpected(std::move(whole).error().Context(path + " is an image that cannot be shown"));
    co_return ShowImage(path, *whole);
  }
  if (LooksBinary(piece))
    co_return TextResult(path + " is a binary file; look at it with run_command, e.g. file, xxd or strings");
  LineRange lines(static_cast<uint64_t>(args.offset.value_or(1)),
                  static_cast<uint64_t>(args.limit.value_or(kDefaultLines)), kTextCap);
  co_return co_await ReadText(file.get(), std::move(piece), std::move(lines));
}

Task<ToolResult> WriteFile(ToolCall* call) {
  SB_CO_TRY(WriteArgs args, wire::DecodeValue<WriteArgs>(call->arguments));
  SB_CO_TRY(Opened opened, co_await OpenSandbox(call));
  SB_CO_TRY(std::string path, Absolute(opened.session, args.path));
  const size_t size = args.content.size();
  SB_CO_TRYV(co_await Store(call, &opened, path, std::move(args.content)));
  co_return WithNote(TextResult(fmt::format("wrote {} bytes to {}", size, path)), opened.note);
}

Task<ToolResult> EditFile(ToolCall* call) {
  SB_CO_TRY(EditArgs args, wire::DecodeValue<EditArgs>(call->arguments));
  SB_CO_TRY(Opened opened, co_await OpenSandbox(call));
  SB_CO_TRY(std::string path, Absolute(opened.session, args.path));
  SB_CO_TRY(auto file, co_await OpenFile(call, &opened, path));
  std::string nothing;
  auto text = co_await ReadRest(file.get(), std::move(nothing), kMaxEdited);
  if (!text) co_return std::unexpected(std::move(text).error().Context(path));
  auto replaced = ReplaceExact(*text, args.old_string, args.new_string, args.replace_all);
  if (!replaced) co_return std::unexpected(std::move(replaced).error().Context(path));
  SB_CO_TRYV(co_await Store(call, &opened, path, std::move(replaced->text)));
  co_return TextResult(fmt::format("{}: replaced {} occurrence{}, the first in line {}", path, replaced->count,
                                   replaced->count == 1 ? "" : "s", replaced->first_line));
}

Task<ToolResult> ListFiles(ToolCall* call) {
  SB_CO_TRY(ListArgs args, wire::DecodeValue<ListArgs>(call->arguments));
  SB_CO_TRY(Opened opened, co_await OpenSandbox(call));
  SB_CO_TRY(std::string path, Absolute(opened.session, args.path.value_or(opened.session.cwd)));
  // A directory with many entries of its own is listed, what is below it is not. Plain enough for any find and stat.
  std::vector<std::string> argv{
      "find",  "-H",           path,   "-mindepth", "1",        "-maxdepth", std::to_string(args.depth.value_or(2)),
      "(",     "-type",        "d",    "(",         "-name",    ".git",      "-o",
      "-name", "node_modules", ")",    "-prune",    "-o",       "-name",     "*",
      ")",     "-exec",        "stat", "-c",        "%F|%s|%n", "{}",        "+"};
  std::string session = opened.session.id;
  SB_CO_TRY(Ran ran, co_await RunQuietly(call, std::move(session), std::move(argv), kMaxListing));
  if (ran.exit_code != 0 && ran.out.empty()) co_return Fail(Code::kFileError, CutText(ran.err, 2000));
  if (ran.out.empty()) {
    SB_CO_TRYV(co_await CheckDirectory(call, &opened, path));
  }
  co_return WithNote(TextResult(Listing(path, ParseListing(ran.out, path), ran.cut)), opened.note);
}

}  // namespace sandbar::mcp
