// `sandbar code`: a cell in a context of a sandbox, or in a sandbox of its own.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/files.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/output_file.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

constexpr size_t kMaxCode = 1 << 20;

Result<std::string> ReadCode(const CodeCommand& command) {
  if (command.code) return *command.code;
  Fd opened;
  int fd = 0;
  if (command.file != "-") {
    opened = Fd(::open(command.file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened) return FailErrno(command.file);
    fd = opened.get();
  }
  return ReadAll(fd, kMaxCode, command.file == "-" ? "the code" : command.file);
}

Result<std::string> ImageBytes(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  text.remove_suffix(text.size() - (text.find_last_not_of(kBlank) + 1));
  auto bytes = DecodeBase64(text);
  if (!bytes) return Fail(Code::kProtocol, "an image is not base64");
  return *std::move(bytes);
}

Result<> SaveFile(const std::string& dir, const std::string& name, std::string_view bytes) {
  // What comes from a sandbox may be secret: it is the caller's alone.
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno(dir);
  const std::string path = dir + "/" + name;
  SB_TRY(OutputFile file, OutputFile::Open(path));
  SB_TRYV(WriteAll(file.fd(), bytes));
  SB_TRYV(file.Commit());
  Note("saved " + path);
  return {};
}

struct Shown {
  const CodeCommand* command;
  bool as_json = false;
  int images = 0;
};

Result<> ShowImages(Shown& shown, const json::object& data) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"image/png", "png"}, {"image/jpeg", "jpg"}, {"image/svg+xml", "svg"}};
  for (const auto& [mime, ending] : kKinds) {
    std::string bytes = Text(data, mime);
    if (bytes.empty()) continue;
    if (!shown.command->out) {
      Note(fmt::format("{} of {}: --out DIR saves it", mime, Bytes(bytes.size())));
      continue;
    }
    if (ending != "svg") {
      SB_TRY(bytes, ImageBytes(bytes));
    }
    SB_TRYV(SaveFile(*shown.command->out, fmt::format("image-{}.{}", ++shown.images, ending), bytes));
  }
  return {};
}

int ExitCodeFor(const std::string& status) {
  if (status == "ok") return 0;
  if (status == "timeout") return kExitTimeout;
  return status == "error" ? 1 : kExitKilled;
}

// One event to where it belongs. The exit code comes with the last one.
Result<std::optional<int>> Show(Shown& shown, const json::object& event) {
  const std::string type = Text(event, "type");
  const json::object& data = Object(event, "data");
  if (shown.as_json) {
    SB_TRYV(Out(wire::NdjsonLine(event)));
  } else if (type == "stdout" || type == "stderr") {
    SB_TRYV(WriteAll(type == "stdout" ? 1 : 2, Text(event, "text")));
  } else if (type == "result" || type == "display") {
    const std::string text = Text(data, "text/plain");
    if (!text.empty()) SB_TRYV(WriteAll(1, text + "\n"));
  } else if (type == "error") {
    std::string text = Text(event, "traceback");
    if (text.empty()) text = Text(event, "name") + ": " + Text(event, "value");
    if (!text.ends_with('\n')) text += "\n";
    SB_TRYV(WriteAll(2, text));
  }
  if (type == "result" || type == "display") SB_TRYV(ShowImages(shown, data));
  if (type != "end") return std::nullopt;
  const std::string status = Text(event, "status");
  if (!shown.as_json && status != "ok" && status != "error") Note("ended: " + status);
  return ExitCodeFor(status);
}

Task<int> RunCell(ApiClient* api, Shown shown, std::string name, json::object body) {
  std::string path = "/x/v1/sandboxes/" + wire::EncodeComponent(name) + "/code";
  http::ClientRequest request = api->Request("POST", path, wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  NdjsonReader lines(response.get());
  std::optional<int> code;
  bool replaced = false;
  for (;;) {
    SB_CO_TRY(auto event, co_await lines.Next());
    if (!event) break;
    replaced = replaced || event->contains("replaced");
    SB_CO_TRY(auto ended, Show(shown, *event));
    if (ended) code = ended;
  }
  if (replaced) Note(kReplacedRemark);
  if (!code) co_return Fail(Code::kClosed, "the answer ended before the code did: the sandbox or server is gone");
  co_return *code;
}

}  // namespace

Task<int> RunCode(ApiClient* api, const Options* options, CodeCommand command) {
  SB_CO_TRY(std::string code, ReadCode(command));
  json::object body{{"code", std::move(code)}};
  if (command.language) body["language"] = *command.language;
  if (command.context) body["context"] = *command.context;
  if (command.timeout_ms) body["timeoutMs"] = *command.timeout_ms;
  Shown shown{&command, options->json};
  if (!command.name.empty()) co_return co_await RunCell(api, shown, command.name, std::move(body));
  RunCommand fresh;
  fresh.image = command.image;
  fresh.isolation = command.isolation;
  if (!command.image) fresh.runtime = command.runtime;
  SandboxWork work = [api, shown, &body](std::string name, const std::string&) {
    return RunCell(api, shown, std::move(name), std::move(body));
  };
  co_return co_await InFreshSandbox(api, options, &fresh, std::move(work));
}

}  // namespace sandbar::cli
