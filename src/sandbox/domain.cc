// The domain's types, in the order in which they need each other, and its start and end.
#include "sandbox/domain.h"

#include <filesystem>

#include "sandbox/code/code_contexts_impl.h"
#include "sandbox/commands/commands_impl.h"
#include "sandbox/commands/log_keeper.h"
#include "sandbox/core.h"
#include "sandbox/drives/drives_impl.h"
#include "sandbox/files/files_impl.h"
#include "sandbox/housekeeper.h"
#include "sandbox/keys/keys_impl.h"
#include "sandbox/ports/ports_impl.h"
#include "sandbox/races/races_impl.h"
#include "sandbox/recovery/recovery.h"
#include "sandbox/sandboxes/sandboxes_impl.h"
#include "sandbox/seals.h"
#include "sandbox/server_impl.h"
#include "sandbox/sessions/sessions_impl.h"
#include "sandbox/snapshots/snapshot_cleaner.h"
#include "sandbox/snapshots/snapshots_impl.h"

namespace sandbar::sandbox {
namespace {

class DomainImpl final : public Domain {
 public:
  DomainImpl(asio::any_io_executor ex, Config config, Dependencies dependencies, EngineSelector engines)
      : core_(std::move(ex), std::move(config), std::move(dependencies), std::move(engines)) {
    housekeeper_.AddChore([this] { return cleaner_.FlattenLongChains(); });
    housekeeper_.AddChore([this] { return cleaner_.RemoveUnused(); });
    housekeeper_.AddChore([this] { return drives_.Tidy(); });
    housekeeper_.AddChore([this] { return memory_.TidyForkSnapshots(); });
    housekeeper_.AddChore([this] { return memory_.Tidy(); });
    housekeeper_.AddChore([this] { return deleter_.RemoveDisposable(); });
    housekeeper_.AddChore([this] { return deleter_.RemoveUnclaimed(); });
    housekeeper_.AddChore([this] { return traces_.PurgeLog(); });
  }

  const Roles& roles() const override { return roles_; }

  Task<> Start() override {
    SB_CO_TRYV(co_await keys_.Load());
    auto bind = [vault = &core_.vault](store::Store& store) { return BindSealsToIds(store, *vault); };
    SB_CO_TRYV(co_await core_.Combined(std::move(bind)));
    SB_CO_TRYV(co_await recovery_.Run());
    SB_CO_TRYV(co_await layers_.CheckAtStart());
    pool_.Start();
    core_.tasks.Spawn(deleter_.FinishPending());
    core_.tasks.Spawn(layers_.Run());
    core_.tasks.Spawn(housekeeper_.Run());
    core_.tasks.Spawn(logs_.Run());
    co_return Result<>{};
  }

  Task<> StopAll() override {
    Result<> stopped = co_await stopper_.StopAll();
    auto drained = co_await pool_.Drain();
    if (!drained) stopped = std::move(drained);
    co_return stopped;
  }

  asio::awaitable<void> Close() override {
    core_.closing = true;
    co_await core_.tasks.Close();
    co_await converter_.Close();
    co_await pool_.Close();
    co_await active_.Close();
  }

 private:
  Core core_;
  Housekeeper housekeeper_{&core_};
  ActiveSessions active_{&core_};
  Records records_{&core_, &active_};
  LayerKeeper layers_{&core_, &active_};
  DiskLimits disk_{&core_, &layers_};
  Stopper stopper_{&core_, &active_, &layers_, &housekeeper_};
  Pool pool_{&core_};
  Converter converter_{&core_};
  LogKeeper logs_{&core_};

  CommandsImpl commands_{&core_, &records_, &active_};
  FilesImpl files_{&records_};
  PortsImpl ports_{&core_, &records_};
  DrivesImpl drives_{&core_, &housekeeper_};
  SessionsImpl sessions_{&core_, &records_, &active_, &stopper_};
  ServerImpl server_{&core_, &active_};
  KeysImpl keys_{&core_};

  MemoryKeeper memory_{&core_, &commands_};
  DeletedTraces traces_{&core_, &memory_, &housekeeper_};
  SnapshotsImpl snapshots_{&core_, &records_, &stopper_, &layers_, &converter_, &traces_};
  SnapshotCleaner cleaner_{&core_, &layers_};

  BootSources sources_{&core_, &records_, &layers_, &disk_};
  Launcher launcher_{&core_, &active_, &converter_, &disk_};
  Creator creator_{&core_, &active_, &stopper_, &pool_, &launcher_, &sources_};
  Updater updater_{&core_, &active_, &records_, &sources_};
  Deleter deleter_{&core_, &active_, &stopper_, &traces_};
  Resumer resumer_{&core_, &active_, &records_, &stopper_, &launcher_, &sources_, &memory_};
  LiveMemory live_{&core_, &active_, &records_, &stopper_, &memory_, &sources_, &creator_};
  Forker forker_{&core_, &records_, &sources_, &creator_, &live_};
  SandboxesImpl sandboxes_{&core_, {&active_, &records_, &creator_, &updater_, &deleter_, &forker_, &resumer_, &live_}};

  CodeContextsImpl code_{&core_, &records_, &active_, &resumer_};
  Promotion promotion_{&core_, &active_, &records_, &stopper_, &sources_};
  RacesImpl races_{&core_, &records_, &active_, &commands_, &forker_, &updater_, &deleter_, &promotion_};
  Recovery recovery_{&core_, &stopper_, &disk_};

  Roles roles_{&sandboxes_, &sessions_, &commands_, &files_,  &snapshots_, &drives_,
               &code_,      &races_,    &ports_,    &server_, &keys_};
};

}  // namespace

Result<std::unique_ptr<Domain>> MakeDomain(asio::any_io_executor ex, Config config, Dependencies dependencies) {
  if (config.default_network_mode != "allow-all" && config.default_network_mode != "deny-all")
    return Fail(Code::kBadRequest, "network.default: allow-all or deny-all");
  if (dependencies.secret.size() < 32) return Fail(Code::kBadRequest, "the secret has to have at least 32 bytes");
  if (config.log_segment_bytes < 4096) return Fail(Code::kBadRequest, "log_segment_bytes: at least 4096");
  const engine::Engine& engine = *dependencies.engine;
  SB_TRY(EngineSelector engines, EngineSelector::Make(engine.engines(), engine.info().name, config));
  std::error_code ec;
  std::filesystem::create_directories(config.data_dir + "/logs", ec);
  // The output of programs may be secret.
  if (!ec) std::filesystem::permissions(config.data_dir + "/logs", std::filesystem::perms::owner_all, ec);
  if (ec) return Fail(Code::kIo, "create " + config.data_dir + "/logs: " + ec.message());
  return std::make_unique<DomainImpl>(std::move(ex), std::move(config), std::move(dependencies), std::move(engines));
}

}  // namespace sandbar::sandbox
