// Start, stop, delete, shutdown.
#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "sandbox/service_faces.h"
#include "sandbox/snapshots/retention.h"
#include "sandbox/tokens.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {

namespace {

constexpr std::chrono::seconds kKeepRetry{5};

}  // namespace

ServiceImpl::ServiceImpl(asio::any_io_executor ex, Config config, Dependencies dependencies, Ladder ladder)
    : core_(std::move(ex), std::move(config), std::move(dependencies), std::move(ladder)),
      faces_(std::make_unique<Faces>(this)),
      pool_(&core_),
      formats_(&core_),
      collect_(core_.ex),
      trim_(core_.ex),
      seal_(core_.ex),
      tasks_(core_.ex) {}

ServiceImpl::~ServiceImpl() = default;

const Roles& ServiceImpl::roles() const {
  return faces_->roles;
}

Result<std::unique_ptr<Domain>> MakeDomain(asio::any_io_executor ex, Config config, Dependencies dependencies) {
  if (config.default_network_mode != "allow-all" && config.default_network_mode != "deny-all")
    return Fail(Code::kBadRequest, "network.default: allow-all or deny-all");
  if (dependencies.secret.size() < 32) return Fail(Code::kBadRequest, "the secret has to have at least 32 bytes");
  if (config.log_segment_bytes < 4096) return Fail(Code::kBadRequest, "log_segment_bytes: at least 4096");
  SB_TRY(Ladder ladder, Ladder::Make(dependencies.engine->engines(), dependencies.engine->info().name, config));
  std::error_code ec;
  std::filesystem::create_directories(config.data_dir + "/logs", ec);
  // What programs print may be secret.
  if (!ec) std::filesystem::permissions(config.data_dir + "/logs", std::filesystem::perms::owner_all, ec);
  if (ec) return Fail(Code::kIo, "create " + config.data_dir + "/logs: " + ec.message());
  return std::make_unique<ServiceImpl>(std::move(ex), std::move(config), std::move(dependencies), std::move(ladder));
}

Task<> ServiceImpl::Start() {
  auto load = [dir = core_.config.data_dir](store::Store& store) { return LoadTokens(store, dir); };
  SB_CO_TRY(tokens_, co_await core_.Db(std::move(load)));
  SB_CO_TRYV(co_await Recover());
  SB_CO_TRYV(co_await CheckDiskAtStart());
  pool_.Start();
  tasks_.Spawn(FinishDeletions());
  tasks_.Spawn(KeepSnapshotsDurable());
  tasks_.Spawn(KeepSnapshotsTidy());
  tasks_.Spawn(KeepLogsBounded());
  co_return Result<>{};
}

Task<> ServiceImpl::StopAll() {
  std::vector<StopOutcome> stops;
  std::vector<std::string> ids;
  for (auto& [id, live] : sessions_) ids.push_back(id);
  for (auto& id : ids) stops.push_back(RequestStop(id, StopCause::kRequested, "server stopped"));
  Result<> out;
  for (auto& stop : stops) {
    auto r = co_await stop->Wait();
    if (!r) out = std::unexpected(std::move(r).error());
  }
  auto drained = co_await pool_.Drain();
  if (!drained) out = std::move(drained);
  co_return out;
}

asio::awaitable<void> ServiceImpl::Close() {
  core_.closing = true;
  co_await tasks_.Close();
  co_await formats_.Close();
  co_await pool_.Close();
  auto sessions = std::exchange(sessions_, {});
  for (auto& [id, live] : sessions) co_await live.session->Detach();
}

ServerInfo ServiceImpl::info() const {
  ServerInfo info;
  info.default_network_mode = core_.config.default_network_mode;
  info.engine = core_.ladder.usual().name;
  info.isolation_class = core_.ladder.usual().isolation_class;
  info.engines = core_.ladder.engines();
  info.running = static_cast<size_t>(std::count_if(sessions_.begin(), sessions_.end(), [](const auto& s) {
    return s.second.session->phase() == Session::Phase::kRunning;
  }));
  return info;
}

ServiceImpl::StopOutcome ServiceImpl::RequestStop(const std::string& session, StopCause cause, std::string why,
                                                  Keep keep) {
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return nullptr;
  Live& live = it->second;
  if (!live.stop) {
    live.stop = std::make_shared<Outcome<store::Sandbox>>(core_.ex);
    tasks_.Spawn(Produce(live.stop, StopNow(live.session, cause, std::move(why), std::move(keep))));
  }
  return live.stop;
}

Task<store::Sandbox> ServiceImpl::StopNow(std::shared_ptr<Session> session, StopCause cause, std::string why,
                                          Keep keep) {
  auto started = co_await session->started()->Wait();
  if (!started) co_return std::unexpected(std::move(started).error());
  co_await session->BeginStop(cause, std::move(why), keep);
  // Cancelled by a shutdown: the row says "stopping", or the sandbox is marked for deletion, and the next start
  // finishes it.
  if (core_.closing) co_return Fail(Code::kCancelled, "the server is shutting down");
  co_await session->Drain(cause != StopCause::kLost);
  if (core_.closing) co_return Fail(Code::kCancelled, "the server is shutting down");
  auto ended = co_await session->End(cause, keep);
  while (!ended && session->phase() != Session::Phase::kEnded && !core_.closing) {
    // Most likely the disk is full. The files are worth more than the name being free soon.
    log::Error("stop of {}: {}; trying again", session->row().id, ended.error().message);
    auto slept = co_await Sleep(kKeepRetry);
    if (!slept) break;
    ended = co_await session->End(cause, keep);
  }
  if (!ended) log::Error("stop of {}: {}", session->row().id, ended.error().message);
  if (core_.closing) co_return ended;
  sessions_.erase(session->row().id);
  Collect();
  Seal();
  co_return ended;
}

Task<SandboxView> ServiceImpl::Stop(Scope scope, std::string session) {
  SandboxView view;
  SB_CO_TRY(view.session, co_await FindSession(scope, session));
  if (auto stop = RequestStop(session, StopCause::kRequested, "requested")) {
    SB_CO_TRY(view.sandbox, co_await stop->Wait());
    SB_CO_TRY(view.session, co_await FindSession(scope, std::move(session)));
    if (!view.session.snapshot.empty()) {
      SB_CO_TRY(view.snapshot, co_await GetSnapshot(std::move(scope), view.session.snapshot));
    }
    co_return view;
  }
  SB_CO_TRY(view.sandbox, co_await SandboxOf(view.session));
  co_return view;
}

Task<store::Session> ServiceImpl::Apply(std::shared_ptr<Session> session, Task<> change) {
  SB_CO_TRYV(co_await std::move(change));
  co_return session->row();
}

Task<store::Session> ServiceImpl::ExtendTimeout(Scope scope, std::string session, int64_t duration_ms) {
  SB_CO_TRY(auto live, co_await FindLive(std::move(scope), std::move(session)));
  auto work = Apply(live, live->ExtendTimeout(duration_ms));
  co_return co_await RunToEnd(&tasks_, std::move(work));
}

Task<store::Session> ServiceImpl::SetNetwork(Scope scope, std::string session, egress::NetworkPolicy policy) {
  SB_CO_TRY(auto live, co_await FindLive(std::move(scope), std::move(session)));
  SB_CO_TRY(auto compiled, egress::Compile(std::move(policy)));
  auto work = Apply(live, live->SetNetwork(std::move(compiled)));
  co_return co_await RunToEnd(&tasks_, std::move(work));
}

}  // namespace sandbar::sandbox
