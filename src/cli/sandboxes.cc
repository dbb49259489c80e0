#include "base/ids.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

constexpr int kPage = 50;
constexpr auto kQuiet = std::chrono::milliseconds(400);

Task<json::array> AllSandboxes(ApiClient* api) {
  json::array all;
  std::string cursor;
  do {
    std::string path = "/v2/sandboxes?limit=" + std::to_string(kPage);
    if (!cursor.empty()) path += "&cursor=" + wire::EncodeComponent(cursor);
    SB_CO_TRY(json::object page, co_await api->Call("GET", path, std::nullopt));
    for (const auto& item : Array(page, "sandboxes")) all.push_back(item);
    cursor = Text(Object(page, "pagination"), "next");
  } while (!cursor.empty());
  co_return all;
}

std::vector<std::string> PsRow(const json::object& s, int64_t now) {
  const json::object& isolation = Object(s, "isolation");
  std::string image = Text(s, "image");
  image = image.substr(0, image.find('@'));
  std::string ends = "-";
  if (s.contains("expiresAt")) ends = "in " + Age(Number(s, "expiresAt") - now);
  return {Text(s, "name"),
          Text(s, "status"),
          image.empty() ? Text(s, "runtime") : image,
          std::to_string(Number(s, "vcpus")),
          std::to_string(Number(s, "memory")) + " MB",
          fmt::format("{} {}", Number(isolation, "class"), Text(isolation, "engine")),
          Age(now - Number(s, "createdAt")) + " ago",
          ends};
}

std::string CommandLine(const json::object& command) {
  std::string line = Text(command, "name");
  for (const auto& arg : Array(command, "args"))
    if (arg.is_string()) line += " " + std::string(arg.as_string());
  // A script is shown in one line. Everything else that is not printable is spelled out by the table.
  for (char& c : line)
    if (c == '\n' || c == '\t') c = ' ';
  size_t end = 57;
  if (line.size() <= end + 3) return line;
  while ((static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
  return line.substr(0, end) + "…";
}

Task<int> ListCommands(ApiClient* api, bool as_json, std::string session) {
  SB_CO_TRY(json::object got, co_await api->Call("GET", SessionPath(session) + "/cmd", std::nullopt));
  if (as_json) {
    SB_CO_TRYV(Out(wire::NdjsonLine(got)));
    co_return 0;
  }
  std::vector<std::vector<std::string>> rows{{"COMMAND", "EXIT", "STARTED", "LINE"}};
  int64_t now = NowMs();
  for (const auto& item : Array(got, "commands")) {
    const json::object& c = item.as_object();
    const json::value* code = c.if_contains("exitCode");
    bool ended = code != nullptr && code->is_int64();
    rows.push_back({Text(c, "id"), ended ? std::to_string(code->as_int64()) : "running",
                    Age(now - Number(c, "startedAt")) + " ago", CommandLine(c)});
  }
  SB_CO_TRYV(Out(Table(rows)));
  co_return 0;
}

// One after the other; what fails is said at once and does not keep the rest from being done.
template <class Act>
Task<int> ForEach(const std::vector<std::string>* names, bool as_json, Act act) {
  int failed = 0;
  for (const std::string& name : *names) {
    Task<json::object> work = act(name);
    auto got = co_await std::move(work);
    if (!got) {
      Error error = std::move(got).error();
      if (names->size() > 1) error.message.insert(0, name + ": ");
      Complain(error, as_json);
      ++failed;
      continue;
    }
    SB_CO_TRYV(Out(as_json ? wire::NdjsonLine(*got) : name + "\n"));
  }
  co_return failed == 0 ? 0 : kExitOurs;
}

Task<json::object> StopOne(ApiClient* api, std::string name) {
  SB_CO_TRY(std::string session, co_await SessionOf(api, std::move(name)));
  co_return co_await api->Call("POST", SessionPath(session) + "/stop", std::nullopt);
}

Task<json::object> RemoveOne(ApiClient* api, std::string name) {
  auto gone = co_await api->Call("DELETE", NamedPath(name), std::nullopt);
  if (!gone) co_return std::unexpected(WithListHint(std::move(gone).error()));
  co_return gone;
}

}  // namespace

std::string NamedPath(const std::string& name) {
  return "/v2/sandboxes/" + wire::EncodeComponent(name);
}

std::string SessionPath(const std::string& session) {
  return "/v2/sandboxes/sessions/" + wire::EncodeComponent(session);
}

const json::array& Array(const json::object& object, std::string_view key) {
  static const json::array kEmpty;
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_array() ? value->as_array() : kEmpty;
}

Error WithListHint(Error error) {
  if (error.code != Code::kNotFound) return error;
  return FailWithFix(error.code, error.message, "sandbar ps -a   # lists the sandboxes").error();
}

Task<std::string> SessionOf(ApiClient* api, std::string name, bool resume) {
  std::string path = NamedPath(name) + (resume ? "?resume=true" : "");
  auto got = co_await api->Call("GET", std::move(path), std::nullopt);
  if (!got) co_return std::unexpected(WithListHint(std::move(got).error()));
  std::string id = Text(Object(*got, "session"), "id");
  if (id.empty()) co_return Fail(Code::kNotFound, name + " has no session");
  co_return id;
}

Task<int> Logs(ApiClient* api, const Options* options, LogsCommand command) {
  SB_CO_TRY(std::string session, co_await SessionOf(api, command.name));
  if (command.command.empty()) co_return co_await ListCommands(api, options->json, std::move(session));
  std::string path = SessionPath(session) + "/cmd/" + wire::EncodeComponent(command.command);
  auto got = co_await api->Call("GET", path, std::nullopt);
  if (!got && got.error().code == Code::kNotFound)
    co_return FailWithFix(Code::kNotFound, command.name + " has no command " + command.command,
                          "sandbar logs " + ShellWord(command.name) + "   # lists its commands");
  if (!got) co_return std::unexpected(std::move(got).error());
  bool running = !Object(*got, "command").at("exitCode").is_int64();
  http::ClientRequest request = api->Request("GET", path + "/logs", "");
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  NdjsonReader lines(response.get());
  bool replaced = false;
  for (;;) {
    // The server's log stream always follows. Without -f a running command's log ends when it falls silent.
    Result<std::optional<json::object>> line;
    if (running && !command.follow) {
      Task<std::optional<json::object>> next = lines.Next();
      line = co_await WithTimeout(std::move(next), kQuiet);
      if (!line && line.error().code == Code::kTimeout) co_return 0;
    } else {
      line = co_await lines.Next();
    }
    if (!line) co_return std::unexpected(std::move(line).error());
    if (!*line) co_return 0;
    if (!replaced && (*line)->contains("replaced")) Note(kReplacedRemark);
    replaced = replaced || (*line)->contains("replaced");
    std::string stream = Text(**line, "stream");
    if (options->json) {
      SB_CO_TRYV(Out(wire::NdjsonLine(**line)));
    } else if (stream == "stdout" || stream == "stderr") {
      SB_CO_TRYV(WriteAll(stream == "stdout" ? 1 : 2, Text(**line, "data")));
    }
    if (stream == "error") co_return Fail(Code::kClosed, Printable(Text(Object(**line, "data"), "message")));
  }
}

Task<int> Ps(ApiClient* api, const Options* options, PsCommand command) {
  SB_CO_TRY(json::array all, co_await AllSandboxes(api));
  json::array shown;
  std::vector<std::vector<std::string>> rows{
      {"NAME", "STATUS", "IMAGE", "VCPUS", "MEMORY", "CLASS", "CREATED", "ENDS"}};
  int64_t now = NowMs();
  for (const auto& item : all) {
    const json::object& s = item.as_object();
    std::string status = Text(s, "status");
    if (!command.all && status != "running" && status != "pending" && status != "stopping") continue;
    rows.push_back(PsRow(s, now));
    shown.push_back(item);
  }
  std::string text = Table(rows);
  if (options->json) {
    json::object wrapped{{"sandboxes", std::move(shown)}};
    text = wire::NdjsonLine(wrapped);
  }
  SB_CO_TRYV(Out(text));
  co_return 0;
}

Task<int> Stop(ApiClient* api, const Options* options, StopCommand command) {
  auto stop = [api](const std::string& name) { return StopOne(api, name); };
  co_return co_await ForEach(&command.names, options->json, stop);
}

Task<int> Rm(ApiClient* api, const Options* options, RmCommand command) {
  auto remove = [api](const std::string& name) { return RemoveOne(api, name); };
  co_return co_await ForEach(&command.names, options->json, remove);
}

Task<int> Pause(ApiClient* api, const Options* options, PauseCommand command) {
  auto pause = [api](const std::string& name) {
    return api->Call("POST", "/x/v1/sandboxes/" + wire::EncodeComponent(name) + "/pause", std::nullopt);
  };
  co_return co_await ForEach(&command.names, options->json, pause);
}

Task<int> Resume(ApiClient* api, const Options* options, ResumeCommand command) {
  auto resume = [api, &command](const std::string& name) {
    if (!command.memory && !command.disk) return api->Call("GET", NamedPath(name) + "?resume=true", std::nullopt);
    json::value body = json::object{{"from", command.memory ? "memory" : "disk"}};
    return api->Call("POST", "/x/v1/sandboxes/" + wire::EncodeComponent(name) + "/resume", std::move(body));
  };
  co_return co_await ForEach(&command.names, options->json, resume);
}

Task<int> Inspect(ApiClient* api, const Options*, InspectCommand command) {
  // The native route knows more (class, denials); an older or foreign server has the protocol's own.
  auto got = co_await api->Call("GET", "/x/v1/sandboxes/" + wire::EncodeComponent(command.name), std::nullopt);
  if (!got) got = co_await api->Call("GET", NamedPath(command.name), std::nullopt);
  if (!got) co_return std::unexpected(std::move(got).error());
  SB_CO_TRYV(Out(wire::NdjsonLine(*got)));
  co_return 0;
}

}  // namespace sandbar::cli
