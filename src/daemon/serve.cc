#include "daemon/serve.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <filesystem>

#include "api/api.h"
#include "api/auth.h"
#include "base/files.h"
#include "base/ids.h"
#include "base/log_level.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/version.h"
#include "daemon/config.h"
#include "daemon/data_dir.h"
#include "daemon/listen_check.h"
#include "daemon/reach_check.h"
#include "daemon/settings.h"
#include "daemon/spawner_process.h"
#include "egress/intercept.h"
#include "egress/policy.h"
#include "engine/spawner_client/spawner_engine.h"
#include "os/self_sandbox.h"
#include "sandbox/domain.h"
#include "wire/loopback.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::daemon {
namespace {

namespace json = boost::json;

constexpr int64_t kSdkTokenMs = 30LL * 24 * 3600 * 1000;
constexpr int kSpawnerEndMs = 60'000;

std::string UrlOf(const Config& config, uint16_t port) {
  std::string host = config.host.contains(':') ? "[" + config.host + "]" : config.host;
  if (host == "0.0.0.0" || host == "[::]") host = "127.0.0.1";
  return fmt::format("{}://{}:{}", config.tls() ? "https" : "http", host, port);
}

api::ApiConfig ApiConfigOf(const Config& config, const std::string& jwt_key, const std::string& register_mjs,
                           std::string jwks) {
  api::ApiConfig out;
  out.prices = config.prices;
  out.jwks = std::move(jwks);
  if (config.host != "0.0.0.0" && config.host != "::" && !wire::IsLoopbackHost(config.host))
    out.host_names.push_back(config.host.contains(':') ? "[" + config.host + "]" : config.host);
  out.port = config.port;
  out.tls = config.tls();
  out.public_url = config.public_url;
  out.preview_domain = config.preview_domain;
  out.jwt_key = jwt_key;
  out.version = cli::kVersion;
  out.register_mjs = register_mjs;
  out.mcp = config.mcp;
  out.machine_cores = ThisHost().cores * config.host_share / 100.0;
  return out;
}

enum class Ending { kLeave, kStopAll };

Task<Ending> AwaitSignal(cli::Signals* signals) {
  SB_CO_TRY(int number, co_await signals->Wait());
  co_return number == SIGUSR1 ? Ending::kStopAll : Ending::kLeave;
}

// Ends when whoever started an embedded server is gone, however it went.
Task<Ending> AwaitLifeline(int fd) {
  auto ex = co_await asio::this_coro::executor;
  if (fd < 0) {
    // No lifeline: the other wait decides.
    asio::steady_timer never(ex, asio::steady_timer::time_point::max());
    auto [ec] = co_await never.async_wait(kToken);
    co_return std::unexpected(FromAsio(ec, "lifeline"));
  }
  asio::posix::stream_descriptor pipe(ex, fd);
  char byte = 0;
  auto [ec, n] = co_await pipe.async_read_some(asio::buffer(&byte, 1), kToken);
  if (ec == asio::error::operation_aborted) co_return std::unexpected(FromAsio(ec, "lifeline"));
  co_return Ending::kStopAll;
}

// Ends when the spawner is gone, and with it every machine: nothing is left to serve.
Task<Ending> AwaitSpawnerGone(int pidfd) {
  auto ex = co_await asio::this_coro::executor;
  Fd copy(::fcntl(pidfd, F_DUPFD_CLOEXEC, 0));
  asio::posix::stream_descriptor process(ex, copy.Release());
  auto [ec] = co_await process.async_wait(asio::posix::stream_descriptor::wait_read, kToken);
  if (ec) co_return std::unexpected(FromAsio(ec, "spawner"));
  co_return Fail(Code::kUnavailable, "the spawner is gone, and every machine with it; start the server again");
}

// A running server, in the order in which it is built; it is taken apart in the opposite one.
struct Running {
  const Config* config = nullptr;
  const SpawnerRef* spawner = nullptr;
  std::string register_mjs;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<images::Catalog> catalog;
  std::unique_ptr<egress::ForwardSigner> signer;
  std::unique_ptr<sandbox::Domain> domain;
  std::unique_ptr<api::Api> api;
  std::unique_ptr<http::HttpServer> http;
  std::string token;
};

Task<> Build(Running* r) {
  auto ex = co_await asio::this_coro::executor;
  const Config& config = *r->config;
  std::string socket = SpawnerSocket(config.data);
  SB_CO_TRY(r->engine, co_await engine::ConnectSpawnerEngine(ex, std::move(socket)));
  SB_CO_TRY(r->store, store::OpenSqlite(config.data + "/sandbar.db"));
  SB_CO_TRY(std::string jwt_key, ReadOrMakeSecret(config.data + "/jwt.key", ""));
  r->catalog = std::make_unique<images::Catalog>(config.images, config.image_aliases);
  SB_CO_TRY(std::string secret, ReadOrMakeSecret(config.data + "/secrets.key", ""));
  sandbox::Dependencies parts{r->engine.get(), r->store.get(), r->catalog.get(), &config.egress, std::move(secret)};
  SB_CO_TRY(std::string forward_key, ReadOrMake(config.data + "/forward.key", egress::MakeForwardKey));
  SB_CO_TRY(r->signer, egress::MakeForwardSigner(forward_key, config.forward_issuer));
  parts.signer = r->signer.get();
  parts.upstream_ca = config.extra_ca;
  SB_CO_TRY(r->domain, sandbox::MakeDomain(ex, config.domain, std::move(parts)));
  // Recovery first: the API answers only when every live machine is attached again.
  SB_CO_TRYV(co_await r->domain->Start());
  SB_CO_TRY(r->token, cli::ReadToken(config.data));
  r->api = std::make_unique<api::Api>(&r->domain->roles(), r->catalog.get(),
                                      ApiConfigOf(config, jwt_key, r->register_mjs, r->signer->Jwks()));
  http::HttpServerOptions http;
  http.tls_cert_file = config.tls_cert;
  http.tls_key_file = config.tls_key;
  if (!config.preview_tls_cert.empty()) {
    http.other_tls_suffix = "." + config.preview_domain;
    http.other_tls_cert_file = config.preview_tls_cert;
    http.other_tls_key_file = config.preview_tls_key;
  }
  api::Api* api = r->api.get();
  http::HttpHandler handler = [api](http::HttpExchange* x) { return api->Handle(x); };
  auto on_error = [api](const Error& e) { return api->OnError(e); };
  SB_CO_TRY(r->http, http::ListenHttp(ex, config.host, config.port, http, std::move(handler), std::move(on_error)));
  api->SetPort(r->http->port());
  co_return Result<>{};
}

Result<> Announce(const Running& r) {
  const Config& config = *r.config;
  std::string url = UrlOf(config, r.http->port());
  auto info = r.domain->roles().server->Info();
  json::object endpoint{{"url", url}, {"pid", ::getpid()}};
  std::string path = cli::EndpointPath(config.data);
  SB_TRYV(WriteReplacing(path, wire::NdjsonLine(endpoint)));
  cli::Note(fmt::format("{} on {}, engine {} (class {}: {}), network default {}, data {}", cli::kVersion, url,
                        info.engine, info.isolation_class, cli::Boundary(info.engine), info.default_network_mode,
                        config.data));
  for (const engine::EngineInfo& e : info.engines)
    if (e.usable && e.name != info.engine)
      cli::Note(fmt::format("on demand: engine {} (class {})", e.name, e.isolation_class));
  if (std::string remark = PreviewRemark(config); !remark.empty()) cli::Note(remark);
  if (auto default_image = r.catalog->ResolveImage(config.domain.default_image); !default_image)
    cli::Note("sandboxes that name no image will be refused: " + default_image.error().message);
  if (config.ready_fd >= 0) {
    json::object ready{{"url", url}, {"token", r.token}};
    SB_TRYV(cli::WriteAll(config.ready_fd, wire::NdjsonLine(ready)));
    ::close(config.ready_fd);
  }
  return {};
}

Task<> RunUntilStopped(Running* r) {
  using namespace asio::experimental::awaitable_operators;
  auto ex = co_await asio::this_coro::executor;
  // From here on a signal is remembered, also one that comes while recovery is still at work.
  cli::Signals signals(ex, {SIGTERM, SIGINT, SIGUSR1});
  auto built = co_await Build(r);
  Ending ending = Ending::kLeave;
  if (built) built = Announce(*r);
  if (built) {
    Task<Ending> signal = AwaitSignal(&signals);
    Task<Ending> lifeline = AwaitLifeline(r->config->lifeline_fd);
    Task<Ending> spawner = AwaitSpawnerGone(r->spawner->pidfd.get());
    auto first = co_await (std::move(signal) || std::move(lifeline) || std::move(spawner));
    auto ended = std::visit([](auto&& e) { return Result<Ending>(std::forward<decltype(e)>(e)); }, std::move(first));
    if (ended) ending = *ended;
    if (!ended) built = std::unexpected(std::move(ended).error());
  }
  if (r->config->ephemeral) ending = Ending::kStopAll;
  std::error_code ec;
  std::filesystem::remove(cli::EndpointPath(r->config->data), ec);
  if (r->http) co_await r->http->Close();
  if (r->api) co_await r->api->Close();
  if (r->domain && built && ending == Ending::kStopAll) {
    auto stopped = co_await r->domain->StopAll();
    if (!stopped) log::Warn("stopping the sandboxes: {}", stopped.error().message);
  }
  if (r->domain) co_await r->domain->Close();
  // The loop ends when nothing waits on it any more; the engine's connection does as long as it exists.
  r->http.reset();
  r->api.reset();
  r->domain.reset();
  r->engine.reset();
  if (built && ending == Ending::kStopAll) co_return Fail(Code::kStopped, "stopped with every machine");
  co_return built;
}

// Runs the loop. kStopped: ended with all machines; success: they go on.
Result<> RunLoop(const Config& config, const SpawnerRef& spawner, const std::string& register_mjs) {
  asio::io_context io(1);
  Running running;
  running.config = &config;
  running.spawner = &spawner;
  running.register_mjs = register_mjs;
  Result<> outcome = Fail(Code::kInternal, "the loop ended early");
  asio::co_spawn(io, RunUntilStopped(&running), [&outcome](std::exception_ptr e, Result<> r) {
    if (e) SB_BUG("exception escaped the server");
    if (!e) outcome = std::move(r);
  });
  io.run();
  return outcome;
}

void RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<> DropAndRun(const Config& config, Identity daemon, const SpawnerRef& spawner, const std::string& register_mjs) {
  os::SelfSandboxOptions drop;
  drop.uid = daemon.uid;
  drop.gid = daemon.gid;
  SB_TRYV(os::DropToDaemon(drop));
  return RunLoop(config, spawner, register_mjs);
}

Result<> ServeOrFail(const cli::Options& options, const cli::ServeCommand& flags) {
  SB_TRY(Config config, LoadConfig(options.data, flags, ThisHost()));
  log::SetLevel(log::ParseLevel(config.log).value_or(log::Level::kInfo));
  if (::geteuid() != 0)
    return cli::FailNeedsRoot(
        "serving needs root: the spawner makes namespaces and mounts (the server "
        "itself gives its rights up)",
        "sudo ./sandbar serve");
  SB_TRY(json::object record, SettingsRecord(config, flags));
  SB_TRY(Identity daemon, LookUpUser(config.user));
  SB_TRYV(CheckListen(config));
  SB_TRYV(CheckReachable(config.user, daemon, "the data directory " + config.data, config.data, false,
                         "give --data a directory that this user can reach (default: /var/lib/sandbar)"));
  SB_TRYV(CheckReachable(
      config.user, daemon, "the images in " + config.images, config.images, true,
      "give --images a directory that this user can read (default: " + std::string(cli::kDefaultImages) + ")"));
  // Whatever is made below is the daemon's alone unless it says otherwise.
  ::umask(0077);
  SB_TRYV(PrepareDataDir(config.data, daemon));
  SB_TRY(Fd lock, LockDataDir(config.data));
  SB_TRYV(WriteRecord(config.data, record));
  SB_TRY(TlsFiles tls, LoadTlsFiles(&config));
  const std::string register_mjs = cli::ReadRegisterMjs();
  RaiseFileLimit();
  config.egress.budget = egress::BudgetFromFdLimit();
  auto published = wire::ParseUrl(config.public_url);
  for (const std::string& own : {published ? published->host : "", config.preview_domain})
    if (auto name = egress::CanonicalName(own); name && *name != "localhost") config.egress.own_names.push_back(*name);
  SB_TRY(SpawnerRef spawner, EnsureSpawner(config, daemon));
  Result<> ran = DropAndRun(config, daemon, spawner, register_mjs);
  if (ran) return {};
  const bool stop_spawner = ran.error().code == Code::kStopped || config.ephemeral;
  // A spawner that we started for nothing must not stay behind; one that holds machines of an earlier daemon must.
  if ((stop_spawner || !spawner.adopted) && !WaitGone(spawner.pidfd, 0)) {
    auto asked = StopSpawner(config.data, spawner);
    if (!asked && !config.ephemeral) log::Warn("stopping the spawner: {}", asked.error().message);
    if (!WaitGone(spawner.pidfd, asked || config.ephemeral ? kSpawnerEndMs : 0))
      log::Warn("the spawner is still there");
  }
  if (ran.error().code == Code::kStopped) return {};
  return ran;
}

}  // namespace

int Serve(const cli::Options& options, const cli::ServeCommand& flags) {
  auto served = ServeOrFail(options, flags);
  if (served) return 0;
  cli::Complain(served.error());
  return 2;
}

Result<cli::SdkToken> MintSdkToken(const std::string& data) {
  SB_TRY(std::string key, ReadFile(data + "/jwt.key"));
  while (key.ends_with('\n')) key.pop_back();
  if (key.size() < 32) return Fail(Code::kIo, data + "/jwt.key is damaged");
  // The JWT names the first key. A server of an earlier release has written no id, and accepts JWTs without one.
  auto id = ReadFile(data + "/token.id");
  std::string first = id ? *std::move(id) : "";
  while (first.ends_with('\n')) first.pop_back();
  int64_t now = NowMs();
  api::JwtClaims claims{std::string(api::kDefaultTeam), std::string(api::kDefaultProject), now + kSdkTokenMs, first,
                        sandbox::KeyRole::kOperator};
  return cli::SdkToken{api::MintJwt(key, claims, now), claims.team, claims.project};
}

}  // namespace sandbar::daemon
