// `sandbar export` and `import`: a sandbox as one .tar.zst. The archive holds
//   sandbar.json   its settings, without variables and network rules: both may hold secrets
//   deleted        what it removed from its image, names ended by NUL
//   files.tar      what it added or changed, with owners, modes, times, attributes and links
// Packing and unpacking of files.tar happen inside machines (a fork of the sandbox; the new sandbox): no program of the
// host takes names, links or attributes out of an archive that anybody may have made.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "base/files.h"
#include "base/ids.h"
#include "cli/archive_file.h"
#include "cli/commands.h"
#include "cli/guest_script.h"
#include "cli/output.h"
#include "cli/output_file.h"
#include "cli/signals.h"
#include "cli/zstd_file.h"
#include "client/tar_stream.h"
#include "wire/ndjson.h"
#include "wire/percent.h"
#include "wire/tar.h"
#include "wire/url.h"

namespace sandbar::cli {

using client::TarHeader;
using client::TarItem;
using client::TarStream;
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPlace = "tmp/.sandbar-transfer/";
constexpr size_t kMaxText = 1 << 20;

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
  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  explicit WorkDir(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Result<Fd> CreateFile(const std::string& path, mode_t mode) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!file) return FailErrno(path);
  return file;
}

// Runs a script as root of the sandbox; its output. A status that is not 0 is an error with what it said.
Task<std::string> RunAsRoot(ApiClient* api, std::string session, std::string text) {
  GuestScript script{"set -e; " + std::move(text), {}, "/", true};
  SB_CO_TRY(Ran ran, co_await RunInGuest(api, std::move(session), std::move(script)));
  if (ran.code != 0) co_return Fail(Code::kUnavailable, "in the sandbox: " + Printable(ran.err));
  co_return std::move(ran.out);
}

Task<std::string> NextPiece(TarStream* tar) {
  co_return tar->Next();
}

Task<> Upload(ApiClient* api, std::string session, std::vector<TarItem> items) {
  for (TarItem& item : items) item.name.insert(0, kPlace);
  TarStream tar(std::move(items));
  http::ClientRequest request = api->Request("POST", SessionPath(session) + "/fs/write", "");
  request.headers.push_back({"content-type", "application/gzip"});
  request.headers.push_back({"x-cwd", "/"});
  http::BodyProducer body = [&tar] { return NextPiece(&tar); };
  SB_CO_TRY(auto response, co_await api->Upload(std::move(request), std::move(body)));
  SB_CO_TRYV(co_await response->ReadAll(kMaxText));
  co_return Result<>{};
}

json::object Settings(const json::object& sandbox, const json::object& inspected) {
  json::object out{{"format", kArchiveFormat}};
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
    // "/a%20b" as the server says it is "./a b" for tar.
    list += "." + wire::DecodeEscapes(Text(change, "path"));
    list += '\0';
  }
  if (deleted.size() > kMaxDeletedList) return Fail(Code::kTooLarge, "too much was deleted");
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
  http::ClientRequest request = api->Request("POST", SessionPath(session) + "/fs/read", wire::ToAsciiJson(body));
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

Task<> Pack(ApiClient* api, std::string session, const WorkDir* work, std::string settings, Fd to) {
  std::vector<TarItem> list{{"kept", work->File("kept")}};
  SB_CO_TRYV(co_await Upload(api, session, std::move(list)));
  std::string script =
      "t=/tmp/.sandbar-transfer; tar --null --no-recursion --numeric-owner --xattrs --xattrs-include='*' -S "
      "-cf $t/files.tar -T $t/kept; chmod 644 $t/files.tar; stat -c %s $t/files.tar";
  SB_CO_TRY(std::string size, co_await RunAsRoot(api, session, std::move(script)));
  ZstdWriter out(std::move(to));
  SB_CO_TRYV(AddText(out, "sandbar.json", settings));
  SB_CO_TRY(std::string deleted, ReadFile(work->File("deleted"), kMaxDeletedList));
  SB_CO_TRYV(AddText(out, "deleted", deleted));
  SB_CO_TRYV(co_await AddFiles(api, std::move(session), std::strtoull(size.c_str(), nullptr, 10), &out));
  SB_CO_TRYV(out.Write(wire::TarEnd()));
  co_return out.Finish();
}

Task<> Fill(ApiClient* api, std::string session, const WorkDir* work) {
  std::vector<TarItem> items{{"deleted", work->File("deleted")}, {"files.tar", work->File("files.tar")}};
  SB_CO_TRYV(co_await Upload(api, session, std::move(items)));
  std::string script =
      // Nothing runs after tar: every program may be the archive's then.
      "t=/tmp/.sandbar-transfer; xargs -0 -r rm -rf -- < $t/deleted; exec 3< $t/files.tar; rm -rf $t; "
      "exec tar --numeric-owner --xattrs --xattrs-include='*' -xpf - <&3";
  SB_CO_TRYV(co_await RunAsRoot(api, session, std::move(script)));
  // What was unpacked is kept from now on.
  SB_CO_TRYV(co_await api->Call("POST", SessionPath(session) + "/stop", std::nullopt));
  co_return Result<>{};
}

// What the new sandbox has, whoever made the archive.
json::object Granted(const json::object& made, const std::vector<std::string>& not_taken) {
  const json::object& isolation = Object(Object(made, "session"), "isolation");
  json::array ports, refused(not_taken.begin(), not_taken.end());
  if (const json::value* routes = made.if_contains("routes"); routes != nullptr && routes->is_array())
    for (const auto& route : routes->as_array()) ports.emplace_back(Number(route.as_object(), "port"));
  return {{"sandbox", Text(Object(made, "sandbox"), "name")},
          {"class", Number(isolation, "class")},
          {"engine", Text(isolation, "engine")},
          {"ports", std::move(ports)},
          {"notTaken", std::move(refused)}};
}

std::string Describe(const json::object& report) {
  auto list = [&report](const char* key) {
    std::string out;
    for (const json::value& item : report.at(key).as_array())
      out += (out.empty() ? "" : ", ") +
             (item.is_string() ? std::string(item.as_string()) : std::to_string(item.as_int64()));
    return out;
  };
  const std::string ports = list("ports"), not_taken = list("notTaken");
  std::string text = fmt::format("class {} ({}), network deny-all, published ports: {}", Number(report, "class"),
                                 Text(report, "engine"), ports.empty() ? "none" : ports);
  if (!not_taken.empty()) text += "\nthe archive also asks for, and does not get: " + not_taken;
  return text;
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
  // From here on a signal leaves in order: neither the fork nor a half-written file stays behind.
  auto ex = co_await asio::this_coro::executor;
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  // Before the sandbox is packed: a file that cannot be written is said at once.
  SB_CO_TRY(OutputFile file, OutputFile::Open(command.file));
  SB_CO_TRY(Fd to, file.Duplicate());
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
  Task<> packing = Pack(api, std::move(session), work.get(), std::move(settings), std::move(to));
  auto packed = co_await UnlessSignalled(&signals, 1, std::move(packing));
  if (packed) packed = file.Commit();
  auto dropped = co_await api->Call("DELETE", "/v2/sandboxes/" + fork, std::nullopt);
  if (!dropped) Note("could not delete " + fork + ": " + dropped.error().message);
  if (!packed) co_return std::unexpected(std::move(packed).error());
  json::object report{{"sandbox", command.name}, {"snapshot", head}, {"file", command.file}};
  if (options->json) SB_CO_TRYV(Out(wire::NdjsonLine(report)));
  Note(command.name + " is in " + command.file + ", without its variables and network rules");
  co_return 0;
}

Task<int> Import(ApiClient* api, const Options* options, ImportCommand command) {
  SB_CO_TRY(auto work, WorkDir::Make());
  SB_CO_TRY(json::object settings, ReadArchive(command.file, work->path(), command.max_size));
  ImportRequest wanted = RequestFor(settings, command);
  const std::string name = Text(wanted.body, "name");
  json::value body = std::move(wanted.body);
  // From here on a signal leaves in order: half a sandbox is not left behind.
  auto ex = co_await asio::this_coro::executor;
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  SB_CO_TRY(json::object made, co_await api->Call("POST", "/v2/sandboxes", std::move(body)));
  const json::object& session = Object(made, "session");
  if (Text(session, "image") != Text(settings, "image"))
    Note("its image was " + QuoteForeign(Text(settings, "image")) + ", here it is " + Text(session, "image"));
  const int64_t vcpus = Number(settings, "vcpus");
  if (!command.vcpus && vcpus > Number(Object(made, "sandbox"), "vcpus"))
    wanted.not_taken.push_back(fmt::format("{} vCPUs (--vcpus)", vcpus));
  json::object report = Granted(made, wanted.not_taken);
  std::string id = Text(session, "id");
  Task<> filling = Fill(api, std::move(id), work.get());
  auto filled = co_await UnlessSignalled(&signals, 1, std::move(filling));
  if (!filled) {
    std::string path = "/v2/sandboxes/" + wire::EncodeComponent(name);
    auto dropped = co_await api->Call("DELETE", std::move(path), std::nullopt);
    if (!dropped) Note("could not delete " + name + ": " + dropped.error().message);
    co_return std::unexpected(std::move(filled).error());
  }
  if (options->json) SB_CO_TRYV(Out(wire::NdjsonLine(report)));
  Note(Describe(report));
  Note(name + " is there: sandbar exec " + ShellQuote(name) + " -- …");
  co_return 0;
}

}  // namespace sandbar::cli
