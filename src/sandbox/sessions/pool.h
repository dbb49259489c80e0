// Machines booted ahead: of the usual engine, configured with an image, agent connected, network closed, not yet
// anybody's. Single loop.
//
// A member is recorded in the store before it is booted, so that the next start destroys it whatever happens; it is
// never handed out twice and never taken back from a sandbox. Refilling is done one machine at a time in the
// background and pauses while creates run (Hold), since both compete for the same kernel work.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "images/images.h"
#include "sandbox/core.h"
#include "sandbox/sessions/connected_machine.h"

namespace sandbar::sandbox {

// The parts of a machine that the image and the size decide; the same for pooled and for cold ones.
engine::Rootfs RootfsOf(const images::Image& image);
engine::Rootfs RootfsOf(const store::Session& session);
engine::BootRequest BootOf(const Core& core, const std::string& engine, int vcpus);
// "repo@sha256:…": how rows name an image.
std::string PinnedName(const images::Image& image);

class Pool {
 public:
  explicit Pool(Core* core);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void Start();
  // A ready machine of this kind, or null. Its pool row is still there: the caller's commit removes it.
  std::unique_ptr<ConnectedMachine> Take(const images::Image& image, int vcpus);
  // A taken machine that was not claimed after all.
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
  // Stops refilling and lets go of the members; the next start destroys them.
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
  // True when it did something: look again at once.
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
