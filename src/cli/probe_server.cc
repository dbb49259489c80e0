// What `doctor` asks a running server: does each engine really run something, do the names of previews lead to it?
#include "cli/commands.h"
#include "wire/ndjson.h"

namespace sandbar::cli {
namespace {

constexpr int64_t kProbeTimeoutMs = 120'000;
constexpr std::chrono::seconds kPreviewTimeout{15};
constexpr size_t kMaxPreviewAnswer = 64 << 10;

int64_t NowSteadyMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

Task<> RunTrue(ApiClient* api, std::string session) {
  json::value body = json::object{{"command", "true"}, {"wait", true}};
  http::ClientRequest request = api->Request("POST", SessionPath(session) + "/cmd", wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  NdjsonReader lines(response.get());
  for (;;) {
    SB_CO_TRY(auto line, co_await lines.Next());
    if (!line) co_return Fail(Code::kClosed, "the answer ended before the command did");
    const json::value* code = Object(*line, "command").if_contains("exitCode");
    if (code == nullptr || !code->is_int64()) continue;
    if (code->as_int64() == 0) co_return Result<>{};
    co_return Fail(Code::kUnavailable, "it exited with " + std::to_string(code->as_int64()));
  }
}

Task<> Probe(ApiClient* api, std::string engine, std::string image) {
  json::value body = json::object{{"projectId", kProject},
                                  {"image", std::move(image)},
                                  {"timeout", kProbeTimeoutMs},
                                  {"persistent", false},
                                  {"networkPolicy", json::object{{"mode", "deny-all"}}},
                                  {"isolation", json::object{{"engine", engine}}}};
  SB_CO_TRY(json::object made, co_await api->Call("POST", "/v3/sandboxes", std::move(body)));
  const json::object& session = Object(made, "session");
  Result<> ran = Fail(Code::kConflict, "the server created the sandbox on another engine");
  if (Text(Object(session, "isolation"), "engine") == engine) ran = co_await RunTrue(api, Text(session, "id"));
  auto gone = co_await api->Call("DELETE", NamedPath(Text(Object(made, "sandbox"), "name")), std::nullopt);
  if (ran && !gone) co_return std::unexpected(std::move(gone).error());
  co_return ran;
}

// Without a token: who knows where the name leads.
Task<std::string> AskPreview(asio::any_io_executor ex, std::string url) {
  auto http = http::MakeHttpClient(std::move(ex));
  http::ClientRequest request;
  request.url = std::move(url);
  SB_CO_TRY(auto response, co_await http->Send(std::move(request)));
  co_return co_await response->ReadAll(kMaxPreviewAnswer);
}

}  // namespace

Task<PreviewProbe> ProbePreviews(ApiClient* api) {
  SB_CO_TRY(json::object info, co_await api->Call("GET", "/x/v1/info", std::nullopt));
  PreviewProbe probe{Text(info, "previewUrl"), ""};
  const size_t star = probe.url.find('*');
  if (star == std::string::npos) co_return Fail(Code::kUnsupported, "the server does not say where its previews are");
  probe.url.replace(star, 1, "sb-doctor");
  const auto ex = co_await asio::this_coro::executor;
  auto ask = AskPreview(ex, probe.url + "/");
  auto answer = co_await WithTimeout(std::move(ask), kPreviewTimeout);
  if (!answer) probe.error = answer.error().message;
  if (answer && !answer->contains("SANDBOX_NOT_FOUND")) probe.error = "something else answers there";
  co_return probe;
}

Task<std::vector<EngineProbe>> ProbeEngines(ApiClient* api) {
  SB_CO_TRY(json::object info, co_await api->Call("GET", "/x/v1/info", std::nullopt));
  SB_CO_TRY(json::object images, co_await api->Call("GET", "/x/v1/images", std::nullopt));
  std::string image;
  for (const auto& item : Array(images, "images"))
    if (image.empty()) image = Text(item.as_object(), "name");
  std::vector<EngineProbe> probes;
  for (const auto& item : Array(info, "engines")) {
    const json::object& known = item.as_object();
    EngineProbe probe{Text(known, "name"), Number(known, "class")};
    probe.is_default = probe.name == Text(info, "engine");
    probe.why_not = Text(known, "whyNot");
    if (probe.why_not.empty()) {
      const int64_t begin = NowSteadyMs();
      auto ran = co_await Probe(api, probe.name, image);
      if (!ran) probe.error = ran.error().message;
      probe.ms = NowSteadyMs() - begin;
    }
    probes.push_back(std::move(probe));
  }
  co_return probes;
}

}  // namespace sandbar::cli
