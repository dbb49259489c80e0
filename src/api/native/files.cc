// Calls on single files of a session. Paths are in the query: as text, or in base64 for names that are no text.
#include <boost/json.hpp>
#include <charconv>

#include "api/body_source.h"
#include "api/call.h"
#include "api/handlers.h"
#include "base/base64.h"
#include "wire/json_decode.h"
#include "wire/ndjson.h"
#include "wire/text.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;
using protocol::FileEntry;
using protocol::FileType;

constexpr uint64_t kMaxPage = protocol::kMaxListed - 1;
constexpr int64_t kNanosecondsPerMs = 1'000'000;

struct AttributesBody {
  std::optional<std::string> mode;
  std::optional<int64_t> uid, gid, size;
  std::optional<int64_t> accessed_at, modified_at;
};
BOOST_DESCRIBE_STRUCT(AttributesBody, (), (mode, uid, gid, size, accessed_at, modified_at))

std::string_view NameOf(FileType type) {
  switch (type) {
    case FileType::kFile:
      return "file";
    case FileType::kDirectory:
      return "directory";
    case FileType::kSymlink:
      return "symlink";
    case FileType::kPipe:
      return "pipe";
    case FileType::kSocket:
      return "socket";
    case FileType::kBlockDevice:
      return "blockDevice";
    case FileType::kCharacterDevice:
      return "characterDevice";
    case FileType::kOther:
      break;
  }
  return "other";
}

// A name may have any bytes; those that are no text are repeated exactly.
void AddName(json::object& out, std::string_view field, std::string_view name) {
  if (wire::IsUtf8(name)) {
    out[field] = name;
    return;
  }
  wire::Utf8Stream decode;
  out[field] = decode.Feed(name) + decode.Flush();
  out[std::string(field) + "Base64"] = EncodeBase64(name);
}

json::object EntryJson(const FileEntry& entry, std::string_view name_field) {
  char mode[8];
  const auto end = std::to_chars(mode, mode + sizeof mode, entry.mode, 8).ptr;
  const std::string octal(mode, end);
  json::object out;
  AddName(out, name_field, entry.name);
  out["type"] = NameOf(entry.type);
  out["size"] = entry.size;
  out["mode"] = std::string(4 - std::min<size_t>(4, octal.size()), '0') + octal;
  out["uid"] = entry.uid;
  out["gid"] = entry.gid;
  out["links"] = entry.links;
  out["accessedAt"] = entry.accessed_ns / kNanosecondsPerMs;
  out["modifiedAt"] = entry.modified_ns / kNanosecondsPerMs;
  if (entry.type == FileType::kSymlink) AddName(out, "target", entry.target);
  return out;
}

Result<uint32_t> ParseMode(std::string_view text) {
  uint32_t mode = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (ec != std::errc{} || end != text.data() + text.size() || mode > protocol::kMaxMode)
    return Fail(Code::kBadRequest, "`mode`: an octal number up to 7777, such as 0644");
  return mode;
}

// A path of the query.
Result<std::string> PathOf(const Call& call, const std::string& name) {
  if (auto encoded = call.query.Get(name + "Base64")) {
    auto path = DecodeBase64(*encoded);
    if (!path) return Fail(Code::kBadRequest, "`" + name + "Base64`: is not base64");
    return *path;
  }
  return std::string(call.query.Get(name).value_or(""));
}

Result<std::string> Needed(const Call& call, const std::string& name) {
  SB_TRY(std::string path, PathOf(call, name));
  if (path.empty()) return Fail(Code::kBadRequest, "`" + name + "`: is required in the query");
  return path;
}

bool FlagOr(const Call& call, std::string_view name, bool otherwise) {
  return call.query.Get(name) ? call.Flag(name) : otherwise;
}

Result<sandbox::FileTarget> TargetOf(const Call& call) {
  sandbox::FileTarget target;
  target.session = call.Param("session");
  SB_TRY(target.path, Needed(call, "path"));
  if (auto cwd = call.query.Get("cwd")) target.cwd = std::string(*cwd);
  target.sudo = call.Flag("sudo");
  // What only root may read is more than a viewer is shown.
  if (target.sudo) SB_TRYV(call.Need(sandbox::KeyRole::kOperator));
  return target;
}

// A number of the body within the bounds of T.
template <class T>
Result<std::optional<T>> Bounded(std::string_view name, std::optional<int64_t> value, int64_t most) {
  if (!value) return std::nullopt;
  if (*value < 0 || *value > most)
    return Fail(Code::kBadRequest, "`" + std::string(name) + "`: from 0 to " + std::to_string(most));
  return static_cast<T>(*value);
}

Result<std::optional<int64_t>> ToNanoseconds(std::string_view name, std::optional<int64_t> ms) {
  constexpr int64_t kMost = INT64_MAX / kNanosecondsPerMs;
  if (!ms) return std::nullopt;
  if (*ms < -kMost || *ms > kMost)
    return Fail(Code::kBadRequest, "`" + std::string(name) + "`: milliseconds since 1970");
  return *ms * kNanosecondsPerMs;
}

Result<protocol::SetAttributes> ParseAttributes(std::string_view text) {
  constexpr int64_t kMostId = UINT32_MAX - 1;  // the last one means "leave it"
  SB_TRY(AttributesBody body, wire::DecodeJson<AttributesBody>(text, {.bytes = kMaxJsonBody}));
  protocol::SetAttributes change;
  if (body.mode) {
    SB_TRY(change.mode, ParseMode(*body.mode));
  }
  SB_TRY(change.owner, Bounded<uint32_t>("uid", body.uid, kMostId));
  SB_TRY(change.group, Bounded<uint32_t>("gid", body.gid, kMostId));
  SB_TRY(change.size, Bounded<uint64_t>("size", body.size, protocol::kMaxOffset));
  SB_TRY(change.accessed_ns, ToNanoseconds("accessedAt", body.accessed_at));
  SB_TRY(change.modified_ns, ToNanoseconds("modifiedAt", body.modified_at));
  return change;
}

Result<protocol::WriteFile> HowToWrite(const Call& call) {
  protocol::WriteFile how;
  SB_TRY(how.offset, call.Number("offset"));
  if (how.offset > protocol::kMaxOffset) return Fail(Code::kBadRequest, "`offset`: is too large");
  how.append = call.Flag("append");
  how.truncate = call.Flag("truncate");
  how.create = FlagOr(call, "create", true);
  how.exclusive = call.Flag("exclusive");
  how.whole = !call.query.Get("offset") && !how.append && !how.truncate;
  if (how.append && call.query.Get("offset")) return Fail(Code::kBadRequest, "`append`: not with `offset`");
  if (how.exclusive && !how.create) return Fail(Code::kBadRequest, "`exclusive`: not with `create=false`");
  if (auto mode = call.query.Get("mode")) {
    SB_TRY(how.mode, ParseMode(*mode));
  }
  return how;
}

Task<> Edit(Call* call, engine::FileEdit change) {
  SB_CO_TRY(auto target, TargetOf(*call));
  SB_CO_TRYV(co_await call->domain->files->Edit(call->scope, std::move(target), std::move(change)));
  json::object nothing;
  co_return co_await call->Reply(std::move(nothing));
}

}  // namespace

Task<> NativeListFiles(Call* call) {
  SB_CO_TRY(auto target, TargetOf(*call));
  SB_CO_TRY(uint64_t limit, call->Number("limit"));
  if (!call->query.Get("limit")) limit = kMaxPage;
  if (limit < 1 || limit > kMaxPage)
    co_return Fail(Code::kBadRequest, "`limit`: from 1 to " + std::to_string(kMaxPage));
  SB_CO_TRY(std::string after, PathOf(*call, "after"));
  if (after.size() > protocol::kMaxPath) co_return Fail(Code::kBadRequest, "`after`: is too long");
  auto list = co_await call->domain->files->List(call->scope, std::move(target), std::move(after),
                                                 static_cast<uint32_t>(limit));
  if (!list) co_return std::unexpected(std::move(list).error());
  json::array entries;
  for (const FileEntry& entry : list->entries) entries.push_back(EntryJson(entry, "name"));
  json::object body{{"entries", std::move(entries)}, {"more", list->more}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeStatFile(Call* call) {
  SB_CO_TRY(auto target, TargetOf(*call));
  const bool follow = FlagOr(*call, "follow", true);
  SB_CO_TRY(FileEntry entry, co_await call->domain->files->Stat(call->scope, std::move(target), follow));
  json::object body{{"file", EntryJson(entry, "path")}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeReadFile(Call* call) {
  SB_CO_TRY(auto target, TargetOf(*call));
  engine::FileRange range;
  SB_CO_TRY(range.offset, call->Number("offset"));
  SB_CO_TRY(range.length, call->Number("length"));
  if (range.offset > protocol::kMaxOffset || range.length > protocol::kMaxOffset)
    co_return Fail(Code::kBadRequest, "`offset`, `length`: are too large");
  if (call->query.Get("length") && range.length == 0) co_return Fail(Code::kBadRequest, "`length`: at least 1");
  auto file = co_await call->domain->files->ReadRange(call->scope, std::move(target), range);
  if (!file) co_return std::unexpected(std::move(file).error());
  co_return co_await call->ReplyBytes(file->get());
}

Task<> NativeWriteFile(Call* call) {
  SB_CO_TRY(auto target, TargetOf(*call));
  SB_CO_TRY(protocol::WriteFile how, HowToWrite(*call));
  BodySource source(call->exchange);
  SB_CO_TRYV(co_await call->domain->files->Write(call->scope, std::move(target), std::move(how), &source));
  json::object body{{"written", source.bytes()}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeSetFileAttributes(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(protocol::SetAttributes change, ParseAttributes(text));
  change.follow = FlagOr(*call, "follow", true);
  if (change.size && !change.follow) co_return Fail(Code::kBadRequest, "`size`: not with `follow=false`");
  co_return co_await Edit(call, std::move(change));
}

Task<> NativeRenameFile(Call* call) {
  protocol::RenameFile change;
  SB_CO_TRY(change.to, Needed(*call, "to"));
  change.replace = call->Flag("replace");
  co_return co_await Edit(call, std::move(change));
}

Task<> NativeRemoveFile(Call* call) {
  using What = protocol::RemoveFile::What;
  protocol::RemoveFile change;
  const bool tree = call->Flag("recursive");
  const auto type = call->query.Get("type");
  if (type && *type != "file" && *type != "directory") co_return Fail(Code::kBadRequest, "`type`: file or directory");
  if (type && tree) co_return Fail(Code::kBadRequest, "`type`: not with `recursive`");
  change.what = tree ? What::kTree : What::kFileOrEmptyDirectory;
  if (type) change.what = *type == "file" ? What::kFile : What::kEmptyDirectory;
  co_return co_await Edit(call, std::move(change));
}

Task<> NativeMakeLink(Call* call) {
  protocol::MakeLink change;
  SB_CO_TRY(change.target, Needed(*call, "target"));
  change.symbolic = FlagOr(*call, "symbolic", true);
  co_return co_await Edit(call, std::move(change));
}

Task<> NativeMakeDirectory(Call* call) {
  protocol::MakeDir change;
  change.recursive = call->Flag("parents");
  if (auto mode = call->query.Get("mode")) {
    SB_CO_TRY(change.mode, ParseMode(*mode));
  }
  co_return co_await Edit(call, std::move(change));
}

}  // namespace sandbar::api
