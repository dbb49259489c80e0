#include "llm/box.h"

#include <fmt/format.h>

#include <filesystem>

#include "wire/ndjson.h"
#include "wire/percent.h"
#include "wire/url.h"

namespace sandbar::llm {
namespace {

using client::Number;
using client::Object;
using client::Text;
namespace fs = std::filesystem;

std::string NamedPath(const std::string& name) {
  return "/v2/sandboxes/" + wire::EncodeComponent(name);
}
std::string SessionPath(const std::string& session) {
  return "/v2/sandboxes/sessions/" + wire::EncodeComponent(session);
}

Result<Box> ReadBox(const json::object& view) {
  const json::object& session = Object(view, "session");
  const json::object& sandbox = Object(view, "sandbox");
  Box box{Text(sandbox, "name"), Text(session, "id"), Text(session, "cwd"), ""};
  if (box.name.empty() || box.session.empty()) return Fail(Code::kProtocol, "the server's answer names no session");
  std::string image = Text(sandbox, "image");
  if (image.empty()) image = Text(sandbox, "runtime");
  const std::string network = Text(Object(session, "networkPolicy"), "mode");
  const json::object& isolation = Object(session, "isolation");
  box.describe =
      fmt::format("{}, class {} ({}), network {}", image.substr(0, image.find('@')), Number(isolation, "class"),
                  Text(isolation, "engine"), network.empty() ? "as set" : network);
  return box;
}

Task<std::string> Produce(client::TarStream* tar) {
  co_return tar->Next();
}

void AddOutput(std::string* out, const std::string& piece, size_t keep, bool* truncated) {
  const size_t room = keep - std::min(keep, out->size());
  out->append(piece, 0, room);
  if (piece.size() > room) *truncated = true;
}

}  // namespace

Result<json::value> ParseNet(const std::string& text) {
  if (text == "deny" || text == "deny-all") return json::object{{"mode", "deny-all"}};
  if (text == "allow" || text == "allow-all") return json::object{{"mode", "allow-all"}};
  if (!text.starts_with("allow:"))
    return Fail(Code::kBadRequest, "'" + text + "' is not deny, allow or allow:host,host");
  json::array hosts;
  for (size_t at = 6; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end == at) return Fail(Code::kBadRequest, "'" + text + "' has an empty host; write allow:host,host");
    hosts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return json::object{{"allow", std::move(hosts)}};
}

std::string AddOrigin(const std::optional<std::string>& image, const std::optional<std::string>& runtime,
                      const std::optional<std::string>& snapshot, json::object* body) {
  if (image) (*body)["image"] = *image;
  if (snapshot) (*body)["source"] = json::object{{"type", "snapshot"}, {"snapshotId", *snapshot}};
  const bool by_runtime = runtime && !image && !snapshot;
  if (by_runtime) (*body)["runtime"] = *runtime;
  // Version 3 of the API: without an image and a runtime, the server's default image.
  return by_runtime ? "/v2/sandboxes" : "/v3/sandboxes";
}

Task<Box> CreateBox(client::ApiClient* api, BoxSpec spec) {
  SB_CO_TRY(json::value policy, ParseNet(spec.net));
  json::object body{{"projectId", client::kProject},
                    {"timeout", spec.timeout_ms},
                    {"persistent", false},
                    {"networkPolicy", std::move(policy)}};
  std::string path = AddOrigin(spec.image, spec.runtime, spec.snapshot, &body);
  json::object demand;
  if (spec.engine) demand["engine"] = *spec.engine;
  if (spec.min_class) demand["minClass"] = *spec.min_class;
  if (!demand.empty()) body["isolation"] = std::move(demand);
  json::value sent = std::move(body);
  SB_CO_TRY(json::object view, co_await api->Call("POST", std::move(path), std::move(sent)));
  co_return ReadBox(view);
}

Task<Box> OpenBox(client::ApiClient* api, std::string name) {
  SB_CO_TRY(json::object view, co_await api->Call("GET", NamedPath(name) + "?resume=true", std::nullopt));
  co_return ReadBox(view);
}

Task<> StillThere(client::ApiClient* api, Box box) {
  auto view = co_await api->Call("GET", NamedPath(box.name), std::nullopt);
  if (!view && view.error().code != Code::kNotFound) co_return std::unexpected(std::move(view).error());
  if (!view || Text(Object(*view, "session"), "id") != box.session)
    co_return Fail(Code::kClosed, "the sandbox was removed while the model worked");
  co_return Result<>{};
}

Task<Box> ForkBox(client::ApiClient* api, std::string name, int64_t timeout_ms, std::optional<std::string> net) {
  json::object wanted{{"persistent", false}, {"timeout", timeout_ms}};
  if (net) {
    SB_CO_TRY(wanted["networkPolicy"], ParseNet(*net));
  }
  json::value body = std::move(wanted);
  SB_CO_TRY(json::object view, co_await api->Call("POST", NamedPath(name) + "/fork", std::move(body)));
  co_return ReadBox(view);
}

Task<> StopBox(client::ApiClient* api, Box box) {
  SB_CO_TRYV(co_await api->Call("POST", SessionPath(box.session) + "/snapshot", std::nullopt));
  co_return Result<>{};
}

Task<> DeleteBox(client::ApiClient* api, std::string name) {
  auto gone = co_await api->Call("DELETE", NamedPath(name) + "?deleteOrphanSnapshots=true", std::nullopt);
  if (!gone && gone.error().code != Code::kNotFound) co_return std::unexpected(std::move(gone).error());
  co_return Result<>{};
}

Task<Ran> RunIn(client::ApiClient* api, Box box, std::vector<std::string> argv, int64_t timeout_ms, size_t keep) {
  json::array args;
  for (size_t i = 1; i < argv.size(); ++i) args.emplace_back(argv[i]);
  json::object body{
      {"command", argv.front()}, {"args", std::move(args)}, {"wait", true}, {"logs", true}, {"timeout", timeout_ms}};
  http::ClientRequest request = api->Request("POST", SessionPath(box.session) + "/cmd", wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  client::NdjsonReader lines(response.get());
  Ran ran;
  std::optional<int> exit_code;
  while (true) {
    SB_CO_TRY(auto line, co_await lines.Next());
    if (!line) break;
    const std::string stream = Text(*line, "stream");
    if (stream == "stdout") AddOutput(&ran.out, Text(*line, "data"), keep, &ran.truncated);
    if (stream == "stderr") AddOutput(&ran.err, Text(*line, "data"), keep, &ran.truncated);
    if (stream == "error") co_return Fail(Code::kClosed, Text(Object(*line, "data"), "message"));
    const json::value* code = Object(*line, "command").if_contains("exitCode");
    if (code != nullptr && code->is_int64()) exit_code = static_cast<int>(code->as_int64());
  }
  if (!exit_code) co_return Fail(Code::kClosed, "the output ended before the command did: the sandbox is gone");
  ran.exit_code = *exit_code;
  co_return ran;
}

Task<> StartIn(client::ApiClient* api, Box box, std::vector<std::string> argv) {
  json::array args;
  for (size_t i = 1; i < argv.size(); ++i) args.emplace_back(argv[i]);
  json::value body = json::object{{"command", argv.front()}, {"args", std::move(args)}, {"sudo", true}};
  std::string path = SessionPath(box.session) + "/cmd";
  SB_CO_TRYV(co_await api->Call("POST", std::move(path), std::move(body)));
  co_return Result<>{};
}

Task<std::vector<BoxChange>> DiffBoxes(client::ApiClient* api, std::string before, std::string after) {
  std::string path = "/x/v1/diff?a=" + wire::EncodeComponent(before) + "&b=" + wire::EncodeComponent(after);
  SB_CO_TRY(json::object got, co_await api->Call("GET", std::move(path), std::nullopt));
  const json::value* more = got.if_contains("truncated");
  const json::value* rows = got.if_contains("changes");
  if (rows == nullptr || !rows->is_array()) co_return Fail(Code::kProtocol, "the server's answer has no `changes`");
  if (more != nullptr && more->is_bool() && more->as_bool())
    co_return Fail(Code::kTooLarge, "the trial changed more files than the server lists");
  std::vector<BoxChange> changes;
  for (const json::value& row : rows->as_array()) {
    if (!row.is_object()) continue;
    const json::object& change = row.as_object();
    changes.push_back({wire::DecodeEscapes(Text(change, "path")), Text(change, "change") == "deleted",
                       Text(change, "type"), static_cast<uint64_t>(std::max<int64_t>(0, Number(change, "size")))});
  }
  co_return changes;
}

Task<> WriteFiles(client::ApiClient* api, Box box, std::vector<client::TarItem> files) {
  if (files.empty()) co_return Result<>{};
  for (client::TarItem& item : files) {
    fs::path path = item.name.starts_with('/') ? fs::path(item.name) : fs::path(box.cwd) / item.name;
    item.name = path.lexically_normal().string().substr(1);
    if (item.name.empty()) co_return Fail(Code::kBadRequest, "a file to write has no name");
  }
  client::TarStream tar(std::move(files));
  http::ClientRequest request = api->Request("POST", SessionPath(box.session) + "/fs/write", "");
  request.headers.push_back({"content-type", "application/gzip"});
  request.headers.push_back({"x-cwd", "/"});
  http::BodyProducer body = [&tar] { return Produce(&tar); };
  SB_CO_TRY(auto response, co_await api->Upload(std::move(request), std::move(body)));
  SB_CO_TRYV(co_await response->ReadAll(1 << 20));
  co_return Result<>{};
}

Task<std::string> ReadFileIn(client::ApiClient* api, Box box, std::string path, size_t limit) {
  json::object body{{"path", path}, {"cwd", box.cwd}};
  http::ClientRequest request = api->Request("POST", SessionPath(box.session) + "/fs/read", wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  co_return co_await response->ReadAll(limit);
}

Result<std::vector<client::TarItem>> FilesBelow(const std::string& dir) {
  std::error_code ec;
  if (!fs::is_directory(dir, ec)) return Fail(Code::kBadRequest, dir + " is no directory");
  std::vector<client::TarItem> items;
  for (auto it = fs::recursive_directory_iterator(dir, ec); !ec && it != fs::end(it); it.increment(ec))
    if (it->is_regular_file() && !it->is_symlink())
      items.push_back({fs::relative(it->path(), dir).string(), it->path().string()});
  if (ec) return Fail(Code::kIo, dir + ": " + ec.message());
  return items;
}

}  // namespace sandbar::llm
