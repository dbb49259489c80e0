// Second line of defence: with a system-call filter that allows everything, guest root still owns nothing of the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "attack_machine.h"

namespace sandbar {
namespace {

using testing::IsEmpty;

// Attacks that only the filter stops, by design; everything else must fail without it.
constexpr const char* kFilterOnly[] = {
    "namespaces.unshare",  "namespaces.clone",       "namespaces.clone3",   "mounts.open-tree",
    "syscalls.io-uring",   "syscalls.userfaultfd",   "syscalls.keys",       "syscalls.perf",
    "syscalls.exotic",     "syscalls.personality",   "syscalls.other-abis", "syscalls.terminal",
    "sockets.families",    "sockets.vsock",          "sockets.protocols",   "sockets.netlink",
    "sockets.urgent-data", "syscalls.shared-blocks", "syscalls.file-flags", "syscalls.flush-everything"};

std::vector<std::string> Unexpected(const AttackReport& report) {
  std::vector<std::string> out;
  for (const auto& line : report.failed) {
    const std::string name = line.substr(0, line.find(':'));
    if (std::find(std::begin(kFilterOnly), std::end(kFilterOnly), name) == std::end(kFilterOnly)) out.push_back(line);
  }
  return out;
}

class WithoutFilter : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    auto machine = AttackMachine::Start();
    ASSERT_TRUE(machine) << machine.error().message;
    machine_ = std::move(*machine);
  }
  std::unique_ptr<AttackMachine> machine_;
};

TEST_F(WithoutFilter, NamespacesMountsDevicesAndTheAgentHoldForRoot) {
  AttackReport report = machine_->Run("all", AttackMachine::kRoot);
  EXPECT_THAT(Unexpected(report), IsEmpty());
  EXPECT_GT(report.passed.size(), 60u) << report.text;
  // And the attacks themselves are real: what only the filter stops, works now.
  EXPECT_THAT(report.failed, testing::Contains(testing::StartsWith("namespaces.unshare:")));
  EXPECT_THAT(report.failed, testing::Contains(testing::StartsWith("syscalls.io-uring:")));
}

TEST_F(WithoutFilter, TheyHoldForAUser) {
  EXPECT_THAT(Unexpected(machine_->Run("all", AttackMachine::kUser)), IsEmpty());
}

}  // namespace
}  // namespace sandbar
