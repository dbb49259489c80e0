#include "sandbox/sandboxes/forker.h"

#include "sandbox/sandboxes/sealed_settings.h"
#include "sandbox/snapshots/retention.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {

Result<NewSandbox> Forker::CopyRecord(const store::Sandbox& source, ForkSpec spec) const {
  store::Sandbox fork = source;
  fork.name.clear();
  fork.v1 = false;
  fork.create_digest.clear();
  fork.status = store::Status::kPending;
  fork.total_egress = fork.total_ingress = fork.total_cpu_ms = fork.total_duration_ms = 0;
  if (spec.name) {
    SB_TRYV(CheckName(*spec.name));
    fork.name = *spec.name;
  }
  NewSandbox wanted;
  auto policy = spec.changes.network ? egress::Compile(*spec.changes.network) : PolicyOf(*core_, source);
  if (!policy && !spec.changes.network) {
    return Fail(Code::kConflict, "the network policy of \"" + source.name + "\" cannot be used (" +
                                     policy.error().message + "): give the fork one of its own, or set another one");
  }
  SB_TRY(wanted.policy, std::move(policy));
  fork.network.reset();
  fork.env = spec.changes.env.value_or(OpenEnv(*core_, source));
  // A fork's ports have names of their own.
  if (!spec.changes.ports) {
    spec.changes.ports.emplace();
    for (const store::PortRoute& route : source.routes) spec.changes.ports->push_back(route.port);
  }
  fork.routes.clear();
  SB_TRYV(ApplyUpdate(spec.changes, core_->config, fork));
  const bool asked = spec.changes.persistent.value_or(false);
  fork.collect_after_ms = CollectAfter(fork, spec.name.has_value(), asked, core_->config.collect_unnamed_ms);
  wanted.record = std::move(fork);
  return wanted;
}

Task<SandboxView> Forker::Fork(Scope scope, std::string name, ForkSpec spec) {
  SB_CO_TRY(auto source, co_await records_->FindSandbox(scope, std::move(name)));
  SB_CO_TRY(NewSandbox wanted, CopyRecord(source, spec));
  if (source.collect_after_ms > 0) {
    auto claim = [key = store::KeyOf(source)](store::Store& store) { return Claim(store, key); };
    SB_CO_TRYV(co_await core_->Combined(std::move(claim)));
  }
  if (spec.live) co_return co_await live_->Fork(std::move(scope), std::move(source), std::move(wanted));
  if (source.current_snapshot.empty()) {
    SB_CO_TRY(wanted.boot.image, co_await sources_->FindImage(false, source.image, std::nullopt));
  } else {
    SB_CO_TRY(wanted.boot, co_await sources_->FindFitting(scope, source.current_snapshot));
  }
  co_return co_await creator_->CreateFrom(std::move(scope), std::move(wanted));
}

}  // namespace sandbar::sandbox
