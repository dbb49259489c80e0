#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cli/commands.h"
#include "cli/output.h"
#include "client/tar_stream.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;
using client::TarItem;
using client::TarStream;

struct Place {
  std::string sandbox;  // empty: this machine
  std::string path;
};

// "name:path" is the sandbox's side. A path of ours that has a colon can be written with a slash before it.
Place Parse(const std::string& text) {
  size_t colon = text.find(':');
  size_t slash = text.find('/');
  if (colon == std::string::npos || colon == 0 || slash < colon) return {"", text};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

Result<std::vector<TarItem>> Collect(const std::string& from, const std::string& as) {
  std::error_code ec;
  fs::path root(from);
  if (fs::is_regular_file(root, ec)) return std::vector<TarItem>{{as, from}};
  if (!fs::is_directory(root, ec))
    return Fail(Code::kNotFound, ec ? from + ": " + ec.message() : from + " is neither a file nor a directory");
  std::vector<TarItem> items;
  for (auto it = fs::recursive_directory_iterator(root, ec); !ec && it != fs::end(it); it.increment(ec)) {
    if (!it->is_regular_file()) continue;
    items.push_back({as + "/" + fs::relative(it->path(), root).string(), it->path().string()});
  }
  if (ec) return Fail(Code::kIo, from + ": " + ec.message());
  if (items.empty()) return Fail(Code::kBadRequest, from + " holds no files");
  return items;
}

Task<std::string> Produce(TarStream* tar) {
  co_return tar->Next();
}

Task<int> CopyIn(ApiClient* api, bool as_json, std::string from, Place to) {
  SB_CO_TRY(
      json::object got,
      co_await api->Call("GET", "/v2/sandboxes/" + wire::EncodeComponent(to.sandbox) + "?resume=true", std::nullopt));
  const json::object& session = Object(got, "session");
  std::string base = fs::path(from).lexically_normal().filename().string();
  if (base.empty()) base = fs::path(from).lexically_normal().parent_path().filename().string();
  // As cp does: a target that ends in a slash (or is empty) is a directory to put it into.
  std::string target = to.path;
  if (target.empty() || target.ends_with('/')) target += base;
  if (!target.starts_with('/')) target = Text(session, "cwd") + "/" + target;
  std::string name = fs::path(target).lexically_normal().string().substr(1);
  if (name.empty()) co_return Fail(Code::kBadRequest, "the target has no name");
  SB_CO_TRY(auto items, Collect(from, name));
  size_t count = items.size();
  TarStream tar(std::move(items));
  std::string path = "/v2/sandboxes/sessions/" + wire::EncodeComponent(Text(session, "id")) + "/fs/write";
  net::ClientRequest request = api->Request("POST", path, "");
  request.headers.push_back({"content-type", "application/gzip"});
  request.headers.push_back({"x-cwd", "/"});
  net::BodyProducer body = [&tar] { return Produce(&tar); };
  SB_CO_TRY(auto response, co_await api->Upload(std::move(request), std::move(body)));
  SB_CO_TRY(std::string answer, co_await response->ReadAll(1 << 20));
  if (as_json) {
    json::object report{{"copied", count}, {"to", "/" + name}};
    SB_CO_TRYV(Out(wire::NdjsonLine(report)));
  } else {
    Note(fmt::format("copied {} file{} to {}:/{}", count, count == 1 ? "" : "s", to.sandbox, name));
  }
  co_return 0;
}

Result<Fd> Create(std::string to, const std::string& source) {
  std::error_code ec;
  if (fs::is_directory(to, ec)) to += "/" + fs::path(source).filename().string();
  // O_NOFOLLOW is not wanted: the target is the user's own and may be a link of theirs, or /dev/stdout.
  Fd out(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!out) return FailErrno(to);
  return out;
}

Task<int> CopyOut(ApiClient* api, bool as_json, Place from, std::string to) {
  SB_CO_TRY(std::string session, co_await SessionOf(api, from.sandbox, true));
  std::string path = "/v2/sandboxes/sessions/" + wire::EncodeComponent(session) + "/fs/read";
  json::object body{{"path", from.path}};
  net::ClientRequest request = api->Request("POST", path, wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  Fd file;
  if (to != "-") {
    SB_CO_TRY(file, Create(to, from.path));
  }
  uint64_t total = 0;
  for (;;) {
    SB_CO_TRY(std::string piece, co_await response->Read());
    if (piece.empty()) break;
    total += piece.size();
    SB_CO_TRYV(WriteAll(file ? file.get() : 1, piece));
  }
  if (as_json && to != "-") {
    json::object report{{"bytes", total}, {"to", to}};
    SB_CO_TRYV(Out(wire::NdjsonLine(report)));
  }
  co_return 0;
}

}  // namespace

Task<int> Copy(ApiClient* api, const Options* options, CpCommand command) {
  Place from = Parse(command.from), to = Parse(command.to);
  if (from.sandbox.empty() == to.sandbox.empty())
    co_return FailWithFix(Code::kBadRequest, "one side must be in a sandbox, the other here",
                          "sandbar cp main.js NAME:/vercel/main.js   or   sandbar cp NAME:/vercel/out.txt .");
  if (from.sandbox.empty()) co_return co_await CopyIn(api, options->json, command.from, std::move(to));
  co_return co_await CopyOut(api, options->json, std::move(from), command.to);
}

}  // namespace sandbar::cli
