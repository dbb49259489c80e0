// For tests: a machine of a real spawner with the attack program in it, and a host full of canaries for it to find.
//
//   SB_TRY(auto machine, AttackMachine::Start());
//   AttackReport report = machine->Run("mounts", AttackMachine::kRoot);
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "support/spawner/test_harness.h"

namespace sandbar {

struct AttackReport {
  std::vector<std::string> passed, failed, skipped;  // lines without their first word
  std::string text;
};

// What a program on the host has that no machine may see: a file, a process with the canary in its command line and
// environment, an abstract unix socket, a TCP service.
class HostCanaries {
 public:
  static Result<std::unique_ptr<HostCanaries>> Plant();
  ~HostCanaries();
  HostCanaries(const HostCanaries&) = delete;
  HostCanaries& operator=(const HostCanaries&) = delete;
  std::string Environment() const;  // "ATTACK_CANARY=… ATTACK_HOST_PATHS=… …", for a shell

 private:
  HostCanaries() = default;
  Result<> StartProcess();
  Result<> StartServices();
  std::string canary_, dir_;
  Fd abstract_, tcp_;
  int port_ = 0;
  pid_t process_ = 0, service_ = 0;
};

class AttackMachine {
 public:
  enum User { kRoot, kUser };
  static Result<std::unique_ptr<AttackMachine>> Start();
  ~AttackMachine();
  AttackMachine(const AttackMachine&) = delete;
  AttackMachine& operator=(const AttackMachine&) = delete;
  // Runs the attacks of one name ("all", a group, or one of them).
  AttackReport Run(const std::string& which, User user);
  // Runs a shell script as root.
  std::string Shell(const std::string& script);
  spawner::TestHost& host() { return *host_; }
  spawner::TestClient& client() { return *client_; }

 private:
  AttackMachine() = default;
  std::unique_ptr<HostCanaries> canaries_;
  std::unique_ptr<spawner::TestHost> host_;
  std::unique_ptr<spawner::TestClient> client_;
  std::vector<Fd> network_;
};

}  // namespace sandbar
