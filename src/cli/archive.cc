// `sandbar export` and `import`: a sandbox as one .tar.zst. The archive holds
//   sandbar.json   its settings, without variables and network rules: both may hold secrets
//   deleted        what it removed from its image, names ended by NUL
//   files.tar      what it added or changed, with owners, modes, times, attributes and links
// Packing and unpacking of files.tar happen inside machines (a fork of the sandbox; the new sandbox): no program of the
// host takes names, links or attributes out of an archive that anybody may have made.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>

#include "base/ids.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/zstd_file.h"
#include "client/tar_stream.h"
#include "wire/json_decode.h"
#include "wire/ndjson.h"
#include "wire/tar.h"
#include "wire/url.h"

namespace sandbar::cli {

using client::TarHeader;
using client::TarItem;
using client::TarStream;
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPlace = "tmp/.sandbar-transfer/";
constexpr size_t kMaxSettings = 1 << 20;
constexpr size_t kMaxText = 1 << 20;
constexpr size_t kMaxDeleted = 256 << 20;
constexpr int kFormat = 1;

// Gone with everything in it when the command ends.
class WorkDir {
 public:
  static Result<std::unique_ptr<WorkDir>> Make() {
    std::error_code ec;
    std::string pattern = fs::temp_directory_path(ec) / "sandbar-archive-XXXXXX";
    if (ec || ::mkdtemp(pattern.data()) == nullptr) return FailErrno("make a temporary directory");
    return std::unique_ptr<WorkDir>(new WorkDir(pattern));
  }
  WorkDir(const WorkDir&) = delete;
  WorkDir& operator=(const WorkDir&) = delete;
  ~WorkDir() {
    std::error_code ec;
    fs::remove_all(path_, ec);
  }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  explicit WorkDir(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string SessionPath(const std::string& session, std::string_view what) {
  return "/v2/sandboxes/sessions/" + wire::EncodeComponent(session) + std::string(what);
}

Result<Fd> CreateFile(const std::string& path, mode_t mode) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!file) return FailErrno(path);
  return file;
}

Result<std::string> ReadWhole(const std::string& path, size_t max) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return FailErrno(path);
  std::string text, piece(64 << 10, '\0');
  ssize_t n = 0;
  while ((n = ::read(file.get(), piece.data(), piece.size())) > 0) {
    text.append(piece, 0, static_cast<size_t>(n));
    if (text.size() > max) return Fail(Code::kTooLarge, path + " is too long");
  }
  if (n < 0) return FailErrno(path);
  return text;
}

int HexValue(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// "/a%20b" as the server says it -> "./a b".
std::string RawName(std::string_view path) {
  std::string out = ".";
  for (size_t i = 0; i < path.size(); ++i) {
    const bool escaped = path[i] == '%' && i + 2 < path.size() && HexValue(path[i + 1]) >= 0;
    out += escaped ? static_cast<char>(HexValue(path[i + 1]) * 16 + HexValue(path[i + 2])) : path[i];
    if (escaped) i += 2;
  }
  return out;
}

// Runs a script as root of the sandbox; its output. A status that is not 0 is an error with what it said.
Task<std::string> Script(ApiClient* api, std::string session, std::string script) {
  json::object body = CommandBody({"sh", "-ec", script}, {}, "/", true, std::nullopt);
  body["wait"] = true;
  body["logs"] = true;
  net::ClientRequest request = api->Request("POST", SessionPath(session, "/cmd"), wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  NdjsonReader lines(response.get());
  std::string out, err;
  std::optional<int64_t> code;
  for (;;) {
    SB_CO_TRY(auto line, co_await lines.Next());
    if (!line) break;
    const json::object& command = Object(*line, "command");
    const json::value* exit = command.if_contains("exitCode");
    if (exit != nullptr && exit->is_int64()) code = exit->as_int64();
    std::string& to = Text(*line, "stream") == "stdout" ? out : err;
    if (line->contains("stream")) to += Text(*line, "data");
    if (out.size() > kMaxText || err.size() > kMaxText) co_return Fail(Code::kTooLarge, "the script says too much");
  }
  if (!code) co_return Fail(Code::kClosed, "the sandbox is gone");
  if (*code != 0) co_return Fail(Code::kUnavailable, "in the sandbox: " + Printable(err));
  co_return out;
}

Task<std::string> NextPiece(TarStream* tar) {
  co_return tar->Next();
}

Task<> Upload(ApiClient* api, std::string session, std::vector<TarItem> items) {
  for (TarItem& item : items) item.name.insert(0, kPlace);
  TarStream tar(std::move(items));
  net::ClientRequest request = api->Request("POST", SessionPath(session, "/fs/write"), "");
  request.headers.push_back({"content-type", "application/gzip"});
  request.headers.push_back({"x-cwd", "/"});
  net::BodyProducer body = [&tar] { return NextPiece(&tar); };
  SB_CO_TRY(auto response, co_await api->Upload(std::move(request), std::move(body)));
  SB_CO_TRYV(co_await response->ReadAll(kMaxText));
  co_return Result<>{};
}

json::object Settings(const json::object& sandbox, const json::object& inspected) {
  json::object out{{"format", kFormat}};
  for (const char* key :
       {"name", "image", "persistent", "timeout", "tags", "snapshotExpiration", "keepLastSnapshots", "nesting"})
    if (const json::value* value = sandbox.if_contains(key)) out[key] = *value;
  // What it demands goes with it; another server meets that or refuses the import.
  if (const json::object& demand = Object(Object(sandbox, "isolation"), "demand"); !demand.empty())
    out["isolation"] = demand;
  out["vcpus"] = Number(sandbox, "vcpus");
  json::array ports;
  if (const json::value* routes = inspected.if_contains("routes"); routes != nullptr && routes->is_array())
    for (const auto& route : routes->as_array()) ports.emplace_back(Number(route.as_object(), "port"));
  out["ports"] = std::move(ports);
  return out;
}

// Both lists, from what the server says has changed.
Result<> WriteLists(const json::object& diff, const WorkDir& work) {
  std::string kept, deleted;
  for (const auto& item : diff.at("changes").as_array()) {
    const json::object& change = item.as_object();
    std::string& list = Text(change, "change") == "deleted" ? deleted : kept;
    list += RawName(Text(change, "path"));
    list += '\0';
  }
  if (deleted.size() > kMaxDeleted) return Fail(Code::kTooLarge, "too much was deleted");
  for (const auto& [name, text] : {std::pair("kept", &kept), std::pair("deleted", &deleted)}) {
    SB_TRY(Fd file, CreateFile(work.File(name), 0600));
    SB_TRYV(WriteAll(file.get(), *text));
  }
  return {};
}

Result<> AddText(ZstdWriter& out, const std::string& name, std::string_view text) {
  SB_TRYV(out.Write(TarHeader(name, text.size(), 0600)));
  SB_TRYV(out.Write(text));
  return out.Write(wire::TarPadding(text.size()));
}

Task<> AddFiles(ApiClient* api, std::string session, uint64_t size, ZstdWriter* out) {
  SB_CO_TRYV(out->Write(TarHeader("files.tar", size, 0600)));
  json::object body{{"path", "/" + std::string(kPlace) + "files.tar"}};
  net::ClientRequest request = api->Request("POST", SessionPath(session, "/fs/read"), wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  uint64_t got = 0;
  for (;;) {
    SB_CO_TRY(std::string piece, co_await response->Read());
    if (piece.empty()) break;
    got += piece.size();
    SB_CO_TRYV(out->Write(piece));
  }
  if (got != size) co_return Fail(Code::kClosed, "the files ended early");
  co_return out->Write(wire::TarPadding(size));
}

Task<> Pack(ApiClient* api, std::string session, const WorkDir* work, std::string settings, std::string to) {
  std::vector<TarItem> list{{"kept", work->File("kept")}};
  SB_CO_TRYV(co_await Upload(api, session, std::move(list)));
  std::string script =
      "cd /; t=/tmp/.sandbar-transfer; tar --null --no-recursion --numeric-owner --xattrs --xattrs-include='*' -S "
      "-cf $t/files.tar -T $t/kept; chmod 644 $t/files.tar; stat -c %s $t/files.tar";
  SB_CO_TRY(std::string size, co_await Script(api, session, std::move(script)));
  SB_CO_TRY(Fd file, CreateFile(to, 0600));
  ZstdWriter out(std::move(file));
  SB_CO_TRYV(AddText(out, "sandbar.json", settings));
  SB_CO_TRY(std::string deleted, ReadWhole(work->File("deleted"), kMaxDeleted));
  SB_CO_TRYV(AddText(out, "deleted", deleted));
  SB_CO_TRYV(co_await AddFiles(api, std::move(session), std::strtoull(size.c_str(), nullptr, 10), &out));
  SB_CO_TRYV(out.Write(wire::TarEnd()));
  co_return out.Finish();
}

// The three files of an archive, and no others.
class Unpacker final : public wire::TarSink {
 public:
  explicit Unpacker(const WorkDir* work) : work_(*work) {}
  Result<> OnEntry(const wire::TarEntry& entry) override {
    const bool known = entry.name == "sandbar.json" || entry.name == "deleted" || entry.name == "files.tar";
    if (!known || entry.directory)
      return Fail(Code::kBadRequest, "not an archive of sandbar: it holds " + Printable(entry.name));
    if (entry.name == "sandbar.json" && entry.size > kMaxSettings) return Fail(Code::kTooLarge, "sandbar.json");
    if (entry.name == "deleted" && entry.size > kMaxDeleted) return Fail(Code::kTooLarge, "its list of deleted files");
    SB_TRYV(CheckRoom(entry));
    SB_TRY(file_, CreateFile(work_.File(entry.name), 0600));
    ++count_;
    return {};
  }
  Result<> OnData(std::string_view bytes) override { return WriteAll(file_.get(), bytes); }
  Result<> OnEntryEnd() override { return {}; }
  bool complete() const { return count_ == 3; }

 private:
  // A small file can say that it holds terabytes.
  Result<> CheckRoom(const wire::TarEntry& entry) const {
    const std::string path = work_.File("");
    struct statvfs fs{};
    if (::statvfs(path.c_str(), &fs) != 0) return FailErrno(path);
    const uint64_t room = static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
    if (entry.size <= room / 2) return {};
    return Fail(Code::kTooLarge, fmt::format("{} of it has {} bytes, {} has room for {} (TMPDIR is another place)",
                                             entry.name, entry.size, path, room / 2));
  }

  const WorkDir& work_;
  Fd file_;
  int count_ = 0;
};

Result<json::object> Unpack(const std::string& from, const WorkDir& work) {
  Fd file(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return FailErrno(from);
  ZstdReader in(std::move(file));
  Unpacker files(&work);
  wire::TarReader tar(&files);
  for (;;) {
    SB_TRY(std::string piece, in.Read());
    if (piece.empty()) break;
    SB_TRYV(tar.Feed(piece));
  }
  SB_TRYV(tar.Finish());
  if (!files.complete()) return Fail(Code::kBadRequest, from + " is not complete");
  SB_TRY(std::string text, ReadWhole(work.File("sandbar.json"), kMaxSettings));
  SB_TRY(json::value settings, wire::ParseJson(text, {.bytes = kMaxSettings}));
  if (!settings.is_object() || Number(settings.as_object(), "format") != kFormat)
    return Fail(Code::kBadRequest, from + " has a format that this version does not know");
  return std::move(settings.as_object());
}

json::object CreateRequest(const json::object& settings, const std::optional<std::string>& name) {
  json::object body{{"projectId", kProject}, {"name", name.value_or(Text(settings, "name"))}};
  for (const char* key :
       {"persistent", "timeout", "tags", "snapshotExpiration", "keepLastSnapshots", "ports", "isolation", "nesting"})
    if (const json::value* value = settings.if_contains(key)) body[key] = *value;
  std::string image = Text(settings, "image");
  body["image"] = image.substr(0, image.find('@'));
  body["resources"] = json::object{{"vcpus", Number(settings, "vcpus")}};
  // What is unpacked is a stranger's: its owner gives it a network when they have looked.
  body["networkPolicy"] = json::object{{"mode", "deny-all"}};
  return body;
}

Task<> Fill(ApiClient* api, std::string session, const WorkDir* work) {
  std::vector<TarItem> items{{"deleted", work->File("deleted")}, {"files.tar", work->File("files.tar")}};
  SB_CO_TRYV(co_await Upload(api, session, std::move(items)));
  std::string script =
      // Nothing runs after tar: every program may be the archive's then.
      "cd /; t=/tmp/.sandbar-transfer; xargs -0 -r rm -rf -- < $t/deleted; exec 3< $t/files.tar; rm -rf $t; "
      "exec tar --numeric-owner --xattrs --xattrs-include='*' -xpf - <&3";
  SB_CO_TRYV(co_await Script(api, session, std::move(script)));
  // What was unpacked is kept from now on.
  SB_CO_TRYV(co_await api->Call("POST", SessionPath(session, "/stop"), std::nullopt));
  co_return Result<>{};
}

}  // namespace

Task<int> Export(ApiClient* api, const Options* options, ExportCommand command) {
  const std::string at = "/x/v1/sandboxes/" + wire::EncodeComponent(command.name);
  SB_CO_TRY(json::object inspected, co_await api->Call("GET", at, std::nullopt));
  const json::object& sandbox = Object(inspected, "sandbox");
  const std::string head = Text(sandbox, "currentSnapshotId");
  if (Text(sandbox, "status") == "running")
    co_return FailWithFix(Code::kConflict, command.name + " runs", "sandbar stop " + ShellQuote(command.name));
  if (head.empty()) co_return Fail(Code::kConflict, command.name + " kept nothing: it was not persistent");
  std::string verify = "/x/v1/snapshots/" + wire::EncodeComponent(head) + "/verify";
  SB_CO_TRY(json::object verified, co_await api->Call("POST", std::move(verify), std::nullopt));
  const std::string damage = Text(Object(verified, "snapshot"), "damage");
  if (!damage.empty()) co_return Fail(Code::kConflict, "its snapshot " + head + " is damaged: " + Printable(damage));
  std::string compare = "/x/v1/diff?a=" + wire::EncodeComponent(head);
  SB_CO_TRY(json::object diff, co_await api->Call("GET", std::move(compare), std::nullopt));
  if (diff.at("truncated").as_bool()) co_return Fail(Code::kTooLarge, "it changed too many files to be exported");
  SB_CO_TRY(auto work, WorkDir::Make());
  SB_CO_TRYV(WriteLists(diff, *work));
  const std::string fork = NewLabel("export-", 12);
  json::value wanted = json::object{{"name", fork},
                                    {"persistent", false},
                                    {"ports", json::array{}},
                                    {"env", json::object{}},
                                    {"networkPolicy", json::object{{"mode", "deny-all"}}}};
  std::string make = "/v2/sandboxes/" + wire::EncodeComponent(command.name) + "/fork";
  SB_CO_TRY(json::object made, co_await api->Call("POST", std::move(make), std::move(wanted)));
  std::string settings = wire::ToAsciiJson(Settings(sandbox, inspected));
  std::string session = Text(Object(made, "session"), "id");
  const std::string part = command.file + "." + NewLabel("part-", 8);
  auto packed = co_await Pack(api, std::move(session), work.get(), std::move(settings), part);
  if (packed && ::rename(part.c_str(), command.file.c_str()) != 0) packed = FailErrno(command.file);
  auto dropped = co_await api->Call("DELETE", "/v2/sandboxes/" + fork, std::nullopt);
  if (!dropped) Note("could not delete " + fork + ": " + dropped.error().message);
  if (!packed) ::unlink(part.c_str());
  if (!packed) co_return std::unexpected(std::move(packed).error());
  json::object report{{"sandbox", command.name}, {"snapshot", head}, {"file", command.file}};
  if (options->json) SB_CO_TRYV(Out(wire::NdjsonLine(report)));
  Note(command.name + " is in " + command.file + ", without its variables and network rules");
  co_return 0;
}

Task<int> Import(ApiClient* api, const Options* options, ImportCommand command) {
  SB_CO_TRY(auto work, WorkDir::Make());
  SB_CO_TRY(json::object settings, Unpack(command.file, *work));
  json::object wanted = CreateRequest(settings, command.name);
  AddDemand(command.isolation, &wanted);
  const std::string name = Text(wanted, "name");
  json::value body = std::move(wanted);
  SB_CO_TRY(json::object made, co_await api->Call("POST", "/v2/sandboxes", std::move(body)));
  const json::object& session = Object(made, "session");
  if (Text(session, "image") != Text(settings, "image"))
    Note("its image was " + Text(settings, "image") + ", here it is " + Text(session, "image"));
  std::string id = Text(session, "id");
  auto filled = co_await Fill(api, std::move(id), work.get());
  if (!filled) {
    std::string path = "/v2/sandboxes/" + wire::EncodeComponent(name);
    auto dropped = co_await api->Call("DELETE", std::move(path), std::nullopt);
    if (!dropped) Note("could not delete " + name + ": " + dropped.error().message);
    co_return std::unexpected(std::move(filled).error());
  }
  json::object report{{"sandbox", name}};
  if (options->json) SB_CO_TRYV(Out(wire::NdjsonLine(report)));
  Note(name + " is there: sandbar exec " + ShellQuote(name) + " -- …");
  co_return 0;
}

}  // namespace sandbar::cli
