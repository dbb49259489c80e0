// `sandbar cp`: which direction, and the way into a sandbox.
#include "cli/copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

#include "cli/guest_script.h"
#include "cli/output.h"
#include "client/tar_stream.h"
#include "wire/ndjson.h"
#include "wire/text.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;
using client::TarItem;
using client::TarStream;

constexpr size_t kMaxSaid = 1 << 20;

// "name:path" is the sandbox's side. A path of ours that has a colon can be written with a slash before it.
Place Parse(const std::string& text) {
  size_t colon = text.find(':');
  size_t slash = text.find('/');
  if (colon == std::string::npos || colon == 0 || slash < colon) return {"", text};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

struct Collected {
  std::vector<TarItem> items;
  std::vector<std::string> left_out;
  uint64_t files = 0;  // and links
};

TarItem Item(std::string name, const std::string& path, TarItem::Kind kind) {
  TarItem item{std::move(name), path};
  item.kind = kind;
  item.keep_time = true;
  return item;
}

Result<> CollectBelow(const std::string& root, const std::string& as, Collected* out) {
  std::error_code ec;
  for (auto it = fs::recursive_directory_iterator(root, ec); !ec && it != fs::end(it); it.increment(ec)) {
    const std::string path = it->path().string();
    // Lexically: what links lead to is not asked.
    std::string below = path.substr(std::min(path.size(), root.size()));
    if (below.starts_with('/')) below.erase(0, 1);
    const std::string name = as.empty() ? below : as + "/" + below;
    const fs::file_status status = it->symlink_status(ec);
    if (ec) break;
    if (fs::is_symlink(status)) {
      out->items.push_back(Item(name, path, TarItem::Kind::kLink));
    } else if (fs::is_directory(status)) {
      out->items.push_back(Item(name, path, TarItem::Kind::kDirectory));
      continue;
    } else if (fs::is_regular_file(status)) {
      out->items.push_back(Item(name, path, TarItem::Kind::kFile));
    } else {
      out->left_out.push_back(path + ": neither a file nor a directory nor a link");
      continue;
    }
    ++out->files;
  }
  if (ec) return Fail(Code::kIo, root + ": " + ec.message());
  return {};
}

Result<Collected> Collect(const std::string& from, const std::string& as) {
  struct stat st{};
  // The path that was named may be a link: what it leads to is meant.
  if (::stat(from.c_str(), &st) != 0) return FailErrno(from);
  Collected out;
  if (S_ISREG(st.st_mode)) {
    out.items.push_back(Item(as, from, TarItem::Kind::kFile));
    out.files = 1;
    return out;
  }
  if (!S_ISDIR(st.st_mode)) return Fail(Code::kBadRequest, from + " is neither a file nor a directory");
  if (!as.empty()) out.items.push_back(Item(as, from + "/.", TarItem::Kind::kDirectory));
  SB_TRYV(CollectBelow(from, as, &out));
  return out;
}

Task<std::string> Produce(TarStream* tar) {
  co_return tar->Next();
}

// Where a copy of `source` goes in the sandbox: absolute, without the slash at its beginning.
Task<std::string> TargetInGuest(ApiClient* api, const json::object* session, const Source* source, std::string path,
                                bool directory) {
  std::string target = path;
  if (!target.starts_with('/')) target = Text(*session, "cwd") + "/" + target;
  const bool names_directory = path.empty() || path.ends_with('/');
  std::string id = Text(*session, "id");
  SB_CO_TRY(auto there, co_await StatInGuest(api, std::move(id), target));
  if (there && directory && !S_ISDIR(there->mode))
    co_return Fail(Code::kBadRequest, target + " exists in the sandbox and is no directory");
  // A file goes into a directory that is named as one, also when it does not exist yet.
  const bool into = there ? S_ISDIR(there->mode) : names_directory && !directory;
  if (into && !source->contents) target += "/" + source->name;
  std::string name = fs::path(target).lexically_normal().string();
  while (name.ends_with('/')) name.pop_back();
  co_return name.empty() ? name : name.substr(1);
}

}  // namespace

Source SourceOf(const std::string& path) {
  Source out{path.empty() ? "." : path, "", false};
  out.contents = out.path == "." || out.path.ends_with("/.");
  while (out.path.size() > 1 && (out.path.ends_with("/.") || out.path.ends_with('/'))) out.path.pop_back();
  const std::string normal = fs::path(out.path).lexically_normal().string();
  out.name = fs::path(normal).filename().string();
  // What has no name of its own has only contents.
  if (out.name.empty() || out.name == "." || out.name == "..") out.contents = true;
  return out;
}

Task<std::optional<GuestFile>> StatInGuest(ApiClient* api, std::string session, std::string path) {
  if (!wire::IsUtf8(path))
    co_return Fail(Code::kBadRequest, "the path in the sandbox is no UTF-8 text: copy the directory that it is in");
  GuestScript script{
      ": sandbar cp; if [ -e \"$1\" ]; then exec stat -L -c '%f %Y' -- \"$1\"; fi", {std::move(path)}, {}, false};
  SB_CO_TRY(Ran ran, co_await RunInGuest(api, std::move(session), std::move(script)));
  if (ran.code != 0) co_return Fail(Code::kUnavailable, "in the sandbox: " + Printable(ran.err.substr(0, 400)));
  if (ran.out.empty()) co_return std::nullopt;
  GuestFile file;
  const char* end = ran.out.data() + ran.out.size();
  unsigned mode = 0;
  auto [space, ec] = std::from_chars(ran.out.data(), end, mode, 16);
  if (ec != std::errc() || space == end || *space != ' ')
    co_return Fail(Code::kProtocol, "stat in the sandbox gave an answer that cannot be read");
  std::from_chars(space + 1, end, file.mtime);
  file.mode = mode;
  co_return file;
}

int NameLeftOut(const std::vector<std::string>& names, uint64_t count, bool as_json) {
  if (count == 0) return 0;
  std::string text = fmt::format("{} not copied:", count);
  for (const std::string& name : names) text += "\n  " + Printable(name.substr(0, 400));
  if (names.size() < count) text += "\n  …";
  Complain(Error{Code::kUnsupported, text}, as_json);
  return kExitOurs;
}

Task<int> CopyIn(ApiClient* api, bool as_json, std::string from, Place to) {
  const Source source = SourceOf(from);
  std::error_code ec;
  const bool directory = fs::is_directory(source.path, ec);
  auto got = co_await api->Call("GET", NamedPath(to.sandbox) + "?resume=true", std::nullopt);
  if (!got) co_return std::unexpected(WithListHint(std::move(got).error()));
  const json::object& session = Object(*got, "session");
  SB_CO_TRY(std::string name, co_await TargetInGuest(api, &session, &source, to.path, directory));
  if (name.empty() && !directory) co_return Fail(Code::kBadRequest, "the target has no name");
  SB_CO_TRY(Collected all, Collect(source.path, name));
  TarStream tar(std::move(all.items));
  http::ClientRequest request = api->Request("POST", SessionPath(Text(session, "id")) + "/fs/write", "");
  request.headers.push_back({"content-type", "application/gzip"});
  request.headers.push_back({"x-cwd", "/"});
  http::BodyProducer body = [&tar] { return Produce(&tar); };
  SB_CO_TRY(auto response, co_await api->Upload(std::move(request), std::move(body)));
  SB_CO_TRYV(co_await response->ReadAll(kMaxSaid));
  if (as_json) {
    json::object report{{"copied", all.files}, {"to", "/" + name}};
    SB_CO_TRYV(Out(wire::NdjsonLine(report)));
  } else {
    Note(fmt::format("copied {} file{} to {}:/{}", all.files, all.files == 1 ? "" : "s", to.sandbox, name));
  }
  co_return NameLeftOut(all.left_out, all.left_out.size(), as_json);
}

Task<int> Copy(ApiClient* api, const Options* options, CpCommand command) {
  Place from = Parse(command.from), to = Parse(command.to);
  if (from.sandbox.empty() == to.sandbox.empty()) {
    auto wrong = FailWithFix(Code::kBadRequest, "one side must be in a sandbox, the other here",
                             "sandbar cp main.js NAME:/vercel/main.js   or   sandbar cp NAME:/vercel/out.txt .");
    Complain(wrong.error(), options->json);
    co_return 2;
  }
  if (from.sandbox.empty()) co_return co_await CopyIn(api, options->json, command.from, std::move(to));
  co_return co_await CopyOut(api, options->json, std::move(from), command.to);
}

}  // namespace sandbar::cli
