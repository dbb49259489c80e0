// Machines that are booted ahead for new sandboxes: of the default engine, configured with an image, agent connected,
// network closed. Single loop.
//
// The pool records a machine in the store before it boots it, so that the next start of the server destroys the machine
// whatever happens. A machine is handed out once and never taken back from a sandbox. The pool refills itself in the
// background, one machine at a time, and pauses while creates run (Hold): both compete for the same kernel work.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "images/images.h"
#include "sandbox/core.h"
#include "sandbox/sessions/connected_machine.h"

namespace sandbar::sandbox {

// The settings of a machine that follow from its image and size; the same for pooled machines and others.
engine::Rootfs RootfsOf(const images::Image& image);
engine::Rootfs RootfsOf(const store::Session& session);
engine::BootRequest BootOf(const Core& core, const std::string& engine, int vcpus);
// The name of an image in rows: "repo@sha256:…".
std::string PinnedName(const images::Image& image);

class Pool {
 public:
  explicit Pool(Core* core);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void Start();
  // A ready machine of this kind, or null. Its pool row is still there: the caller's commit removes it.
  std::unique_ptr<ConnectedMachine> Take(const images::Image& image, int vcpus);
  // Returns a machine that no sandbox claimed after all.
  void PutBack(const images::Image& image, int vcpus, std::unique_ptr<ConnectedMachine> connected);
  size_t ready() const;

  // While a hold exists no new machine is booted.
  class Hold {
   public:
    explicit Hold(Pool* pool) : pool_(pool) { ++pool_->holds_; }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() {
      if (--pool_->holds_ == 0) pool_->changed_.Notify();
    }

   private:
    Pool* pool_;
  };

  // Stops refilling and destroys every member.
  Task<> Drain();
  // Stops refilling and detaches from the members; the next start of the server destroys them.
  asio::awaitable<void> Close();

 private:
  struct Member final : MachineListener {
    explicit Member(Pool* p) : pool(p) {}
    void OnOutput(const std::string&, uint64_t, uint8_t, std::string_view) override {}
    void OnGap(const std::string&, uint64_t, uint64_t) override {}
    void OnExit(const protocol::Exit&) override {}
    void OnConnected() override {}
    void OnLost(const std::string&) override {
      dead = true;
      pool->changed_.Notify();
    }
    Pool* pool;
    std::unique_ptr<ConnectedMachine> connected;
    std::string digest;
    int vcpus = 0;
    bool dead = false;
  };

  Task<> Refill();
  // True when it changed something, so that another step may be due at once.
  Task<bool> Step();
  Task<> Add(PoolTarget target);
  Task<> Remove(std::unique_ptr<Member> member);
  Task<images::Image> Resolve(PoolTarget target);

  Core* core_;
  std::list<std::unique_ptr<Member>> members_;
  size_t holds_ = 0;
  bool closing_ = false;
  std::chrono::milliseconds pause_{0};  // after a failed boot
  Event changed_;
  TaskGroup tasks_;
};

}  // namespace sandbar::sandbox
