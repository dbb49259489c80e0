// A running machine with its agent connected and its network served: engine::Machine + GuestLink + Egress as one thing
// that is made as a whole and undone as a whole. Used by sessions and by the pool. Single loop.
//
// It reconnects to the agent by itself when the connection breaks; when that fails, or the machine ends, its listener
// hears OnLost once. Close or Destroy must be awaited before destruction.
#pragma once

#include <memory>
#include <string>

#include "egress/egress.h"
#include "engine/engine.h"
#include "engine/guest_link/guest_link.h"
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
  // A connection is up (again): what was received meanwhile can be acknowledged.
  virtual void OnConnected() = 0;
  // The machine is gone or useless; `why` is for people.
  virtual void OnLost(const std::string& why) = 0;
};

class ConnectedMachine final : private engine::GuestEvents {
 public:
  // Boot, Configure, connect, deny-all network. When any step fails, everything made so far is destroyed again.
  static Task<std::unique_ptr<ConnectedMachine>> Boot(Core* core, engine::BootRequest request, engine::Rootfs rootfs);
  // The same with the engine's boot of that request given, perhaps begun long ago.
  static Task<std::unique_ptr<ConnectedMachine>> Start(Core* core, engine::BootRequest request, engine::Rootfs rootfs,
                                                       Task<std::unique_ptr<engine::Machine>> booting);
  // A machine that outlived an earlier daemon, network served, agent not yet connected: Connect does that, when the
  // listener is ready to hear what the agent replays.
  static Task<std::unique_ptr<ConnectedMachine>> Attach(Core* core, store::Session owner, egress::PolicyRef policy);
  ConnectedMachine(Core* core, std::unique_ptr<engine::Machine> machine);
  ConnectedMachine(const ConnectedMachine&) = delete;
  ConnectedMachine& operator=(const ConnectedMachine&) = delete;
  ~ConnectedMachine() override = default;

  void Listen(MachineListener* listener);
  Task<> Connect();
  // For a machine that went on from a saved memory: its agent learns what its commands are called from now on, and
  // is connected anew. What it says before is not heard; from then on `listener` hears it.
  Task<> Rekey(std::vector<protocol::Renamed> commands, MachineListener* listener);
  const std::string& id() const { return machine_->id(); }
  engine::Machine& machine() { return *machine_; }
  // To a server in the machine, by the engine or through the agent.
  Task<Fd> DialPort(uint16_t port);
  egress::Egress& egress() { return *egress_; }
  // Whose it is from now on: decides the CA of its proxy and what forwarded requests say. Before a policy
  // other than deny-all.
  void Identify(const store::Session& owner);
  std::string CaCertificate(const egress::CompiledPolicy& policy) { return interceptor_.CaCertificate(policy); }
  // Null while the connection is down. Shared with calls in flight: a link that was replaced must outlive them.
  const std::shared_ptr<engine::GuestLink>& link() const { return link_; }
  // The guest has a kernel of its own: of its processes the host's kernel knows none.
  bool has_own_kernel() const { return has_own_kernel_; }
  // Once it is lost: whether the host has ended it for want of memory.
  bool out_of_memory() const { return out_of_memory_; }

  // Ends connections and network service; the machine goes on.
  asio::awaitable<void> Close();
  // Close, then remove the machine; with a name, what it wrote stays as that snapshot.
  Task<engine::Usage> Destroy(std::string keep_as = "");

 private:
  void OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) override;
  void OnGap(const std::string& command, uint64_t offset, uint64_t bytes) override;
  void OnExit(const protocol::Exit& exit) override;
  void OnClosed(const Error& why) override;

  Task<> Dial();
  // Again and again, each time with more patience: see the definition.
  Task<> DialRestored();
  Task<> Reconnect();
  Task<> WatchExit();
  void Serve(egress::PolicyRef policy);
  void Lost(const std::string& why);
  Task<> Lose(std::string why);  // finds out more first

  Core* core_;
  std::unique_ptr<engine::Machine> machine_;
  MachineInterceptor interceptor_;
  std::unique_ptr<egress::Egress> egress_;
  std::shared_ptr<engine::GuestLink> link_;
  MachineListener* listener_ = nullptr;
  std::chrono::milliseconds hello_timeout_;  // with an agent that has not answered yet
  std::string agent_key_;                    // that the agent has to say; empty: whatever it says, until it was renewed
  bool out_of_memory_ = false;
  bool has_own_kernel_ = false;  // has_own_kernel
  bool restored_ = false;        // its kernel ran before we came
  bool closing_ = false;
  bool connecting_ = false;
  bool closed_early_ = false;
  std::string lost_;  // why, when OnLost was due before there was a listener
  TaskGroup tasks_;
};

}  // namespace sandbar::sandbox
