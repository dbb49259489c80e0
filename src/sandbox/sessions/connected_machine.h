// A running machine with its agent connected and its network served: engine::Machine, GuestLink and Egress, made and
// undone together. Used by sessions, by the pool and by the converter. Single loop.
//
// It reconnects to the agent when the connection breaks. When that fails, or the machine ends, it calls OnLost of its
// listener once. Close or Destroy must be awaited before destruction.
#pragma once

#include <memory>
#include <string>

#include "base/step_times.h"
#include "egress/egress.h"
#include "engine/guest_link/guest_link.h"
#include "engine/machine.h"
#include "engine/values.h"
#include "sandbox/core.h"
#include "sandbox/sessions/machine_interceptor.h"
#include "store/records.h"

namespace sandbar::sandbox {

class MachineListener {
 public:
  virtual ~MachineListener() = default;
  virtual void OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) = 0;
  virtual void OnGap(const std::string& command, uint64_t offset, uint64_t bytes) = 0;
  virtual void OnExit(const protocol::Exit& exit) = 0;
  // A connection is up, perhaps again: output that was received meanwhile can be acknowledged.
  virtual void OnConnected() = 0;
  // The machine is gone or useless; `why` is for people.
  virtual void OnLost(const std::string& why) = 0;
};

class ConnectedMachine final : private engine::GuestEvents {
 public:
  // Boot, Configure, connect, deny-all network. When any step fails, everything made so far is destroyed again.
  static Task<std::unique_ptr<ConnectedMachine>> Boot(Core* core, engine::BootRequest request, engine::Rootfs rootfs);
  // The same with a boot of that request that the engine has begun already. `steps` outlives the task.
  static Task<std::unique_ptr<ConnectedMachine>> Start(Core* core, engine::BootRequest request, engine::Rootfs rootfs,
                                                       Task<std::unique_ptr<engine::Machine>> booting,
                                                       StepTimes* steps = nullptr);
  // A machine that outlived an earlier server. Its network is served, but its agent is not connected yet: the caller
  // calls Connect when the listener is ready for the output that the agent replays.
  static Task<std::unique_ptr<ConnectedMachine>> Attach(Core* core, store::Session owner, egress::PolicyRef policy);
  ConnectedMachine(Core* core, std::unique_ptr<engine::Machine> machine);
  ConnectedMachine(const ConnectedMachine&) = delete;
  ConnectedMachine& operator=(const ConnectedMachine&) = delete;
  ~ConnectedMachine() override = default;

  void Listen(MachineListener* listener);
  Task<> Connect();
  // For a machine that continues from a saved memory: gives its agent a key, entropy and a clock of its own and new ids
  // for its commands, and connects to it anew. `listener` hears the agent only from then on.
  Task<> Rekey(std::vector<protocol::Renamed> commands, MachineListener* listener);
  const std::string& id() const { return machine_->id(); }
  engine::Machine& machine() { return *machine_; }
  // A connection to a server in the machine, by the engine or through the agent.
  Task<Fd> DialPort(uint16_t port);
  egress::Egress& egress() { return *egress_; }
  // Names the session that the machine belongs to: this decides the CA of its proxy and the identity in forwarded
  // requests. Call it before any policy other than deny-all.
  void Identify(const store::Session& owner);
  std::string CaCertificate(const egress::CompiledPolicy& policy) { return interceptor_.CaCertificate(policy); }
  // Null while the connection is down. Shared with calls in flight: a link that was replaced must outlive them.
  const std::shared_ptr<engine::GuestLink>& link() const { return link_; }
  // The guest has a kernel of its own: the host's kernel knows none of its processes.
  bool has_own_kernel() const { return has_own_kernel_; }
  // After OnLost: whether the host ended the machine because it was out of memory.
  bool out_of_memory() const { return out_of_memory_; }

  // Ends connections and network service; the machine goes on.
  asio::awaitable<void> Close();
  // Close, then remove the machine. With a name, its files stay as that snapshot.
  Task<engine::Usage> Destroy(std::string keep_as = "");

 private:
  void OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) override;
  void OnGap(const std::string& command, uint64_t offset, uint64_t bytes) override;
  void OnExit(const protocol::Exit& exit) override;
  void OnClosed(const Error& why) override;

  Task<> Dial();
  // Dials several times, each time with a longer timeout: see the definition.
  Task<> DialRestored();
  Task<> Reconnect();
  Task<> WatchExit();
  void Serve(egress::PolicyRef policy);
  void Lost(const std::string& why);
  Task<> Lose(std::string why);  // asks the engine for the cause first

  Core* core_;
  std::unique_ptr<engine::Machine> machine_;
  MachineInterceptor interceptor_;
  std::unique_ptr<egress::Egress> egress_;
  std::shared_ptr<engine::GuestLink> link_;
  MachineListener* listener_ = nullptr;
  std::chrono::milliseconds hello_timeout_;  // for the first answer of the agent
  std::string agent_key_;                    // that the agent has to show; empty: any, until Rekey
  bool out_of_memory_ = false;
  bool has_own_kernel_ = false;
  bool restored_ = false;  // it continues from a saved memory, or answers as slowly
  bool closing_ = false;
  bool connecting_ = false;
  bool closed_early_ = false;
  std::string lost_;  // why, when OnLost was due before there was a listener
  TaskGroup tasks_;
};

}  // namespace sandbar::sandbox
