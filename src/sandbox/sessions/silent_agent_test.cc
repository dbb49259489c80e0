// An agent that answers nothing: the end of its sandbox does not wait for it.
#include <gtest/gtest.h>

#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

TEST_F(DomainTest, ADeleteDoesNotWaitForAnAgentThatIsSilent) {
  Boot();
  CreateSpec spec;
  spec.name = "gone";
  spec.persistent = false;
  auto view = world.Create(spec);
  world.Machine(view)->agent.deaf = true;
  std::optional<bool> deleted;
  auto remove = world.sandboxes->Delete(world.scope, "gone", false);
  asio::co_spawn(world.ioc.get_executor(), std::move(remove),
                 [&](std::exception_ptr, auto done) { deleted = done.has_value(); });
  // Less than an agent gets that has files to write out.
  EXPECT_TRUE(world.Until([&] { return deleted.has_value() && world.host.ids().empty(); }));
  EXPECT_TRUE(deleted.value_or(false));
}

TEST_F(DomainTest, AStopDoesNotWaitForAnAgentThatIsSilentAndKeepsTheFiles) {
  Boot();
  CreateSpec spec;
  spec.name = "kept";
  spec.persistent = true;
  auto view = world.Create(spec);
  auto started = world.commands->Start(world.scope, view.session.id, World::Command({"sleep", "3600000"}));
  auto command = world.Run(std::move(started));
  ASSERT_TRUE(command);
  world.Machine(view)->agent.deaf = true;
  std::optional<Result<SandboxView>> stopped;
  auto stop = world.sessions->Stop(world.scope, view.session.id);
  asio::co_spawn(world.ioc.get_executor(), std::move(stop),
                 [&](std::exception_ptr, auto done) { stopped = std::move(done); });
  // Less than an agent gets that answers and has much to write out.
  ASSERT_TRUE(world.Until([&] { return stopped.has_value(); }));
  ASSERT_TRUE(*stopped) << stopped->error().message;
  EXPECT_EQ((*stopped)->session.status, store::Status::kStopped);
  ASSERT_EQ(world.host.snapshots.size(), 1U);
  EXPECT_EQ((*stopped)->sandbox.current_snapshot, *world.host.snapshots.begin());
  auto row = world.Run(world.commands->Get(world.scope, view.session.id, command->command.id));
  ASSERT_TRUE(row);
  EXPECT_TRUE(row->exit_code.has_value()) << "the command has ended with its machine";
}

}  // namespace
}  // namespace sandbar::sandbox
