// The fake keeps the contract that the real engines keep, as far as the tests above it rely on it.
#include "support/engine/fake_engine.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <optional>

#include "engine/guest_link/guest_link.h"

namespace sandbar::engine {
namespace {

class Recorder final : public GuestEvents {
 public:
  void OnOutput(const std::string&, uint64_t offset, uint8_t, std::string_view bytes) override {
    EXPECT_EQ(offset, text.size());
    text += bytes;
  }
  void OnGap(const std::string&, uint64_t, uint64_t) override {}
  void OnExit(const protocol::Exit& e) override { exit = e; }
  void OnClosed(const Error&) override { closed = true; }
  std::string text;
  std::optional<protocol::Exit> exit;
  bool closed = false;
};

Task<std::unique_ptr<GuestLink>> Open(Machine* machine, GuestEvents* events) {
  SB_CO_TRY(auto socket, co_await machine->Connect());
  co_return co_await OpenGuestLink(std::move(socket), events);
}

// Void results made usable for Get().
Task<bool> Done(Task<> task) {
  SB_CO_TRYV(co_await std::move(task));
  co_return true;
}

Task<bool> Booted(Task<std::unique_ptr<Machine>> task) {
  auto machine = co_await std::move(task);
  co_return machine.has_value();
}

class FakeEngineTest : public testing::Test {
 protected:
  template <class T>
  T Get(Task<T> task) {
    std::optional<Result<T>> out;
    asio::co_spawn(ioc_, std::move(task), [&out](std::exception_ptr, Result<T> r) { out.emplace(std::move(r)); });
    EXPECT_TRUE(Until([&] { return out.has_value(); }));
    EXPECT_TRUE(*out) << (*out ? "" : out->error().message);
    return *std::move(*out);
  }
  void Do(asio::awaitable<void> task) {
    bool done = false;
    asio::co_spawn(ioc_, std::move(task), [&done](std::exception_ptr) { done = true; });
    EXPECT_TRUE(Until([&] { return done; }));
  }
  bool Until(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) {
      ioc_.restart();
      ioc_.run_one_for(std::chrono::milliseconds(10));
    }
    return condition();
  }
  asio::io_context ioc_{1};
  FakeHost host_{ioc_.get_executor()};
};

TEST_F(FakeEngineTest, PretendsSeveralEngines) {
  host_.engines = {{.name = "a"},
                   {.name = "b", .isolation_class = 3, .usable = false, .why_not = "no KVM"},
                   {.name = "c", .isolation_class = 3, .format = RootfsFormat::kBlock}};
  auto engine = MakeFakeEngine(&host_);
  auto boots = [&](std::string id, std::string name, RootfsFormat format) {
    BootRequest request;
    request.machine_id = std::move(id);
    request.engine = std::move(name);
    request.format = format;
    return Get(Booted(engine->Boot(std::move(request))));
  };
  EXPECT_FALSE(boots("m-1", "b", RootfsFormat::kDir));
  EXPECT_FALSE(boots("m-1", "c", RootfsFormat::kDir)) << "its format is not asked for";
  EXPECT_TRUE(boots("m-1", "c", RootfsFormat::kBlock));
  EXPECT_TRUE(boots("m-2", "", RootfsFormat::kDir));
  auto machines = Get(engine->List());
  ASSERT_EQ(machines.size(), 2U);
  EXPECT_EQ(machines[0].engine, "c");
  EXPECT_EQ(machines[1].engine, engine->info().name);
  Do(host_.Close());
}

TEST_F(FakeEngineTest, CommandsOutliveConnectionsAndEngines) {
  auto engine = MakeFakeEngine(&host_);
  BootRequest request;
  request.machine_id = "m-1";
  auto machine = Get(engine->Boot(request));
  NetworkSockets network = machine->TakeNetwork();
  EXPECT_TRUE(network.tcp_listener);
  EXPECT_TRUE(network.dns);
  Get(Done(machine->Configure({}, {})));
  Recorder first;
  auto link = Get(Open(machine.get(), &first));
  protocol::Exec exec;
  exec.id = "cmd_1";
  exec.argv = {"/bin/echo", "kept"};
  exec.cwd = "/";
  Get(Done(link->Exec(exec)));
  ASSERT_TRUE(Until([&] { return first.exit.has_value(); }));
  EXPECT_EQ(first.text, "kept\n");
  Do(link->Close());
  link.reset();
  machine.reset();

  engine = MakeFakeEngine(&host_);
  EXPECT_EQ(Get(engine->List()).size(), 1U);
  machine = Get(engine->Attach("m-1"));
  Recorder second;
  link = Get(Open(machine.get(), &second));
  ASSERT_EQ(link->known_commands().size(), 1U);
  ASSERT_TRUE(Until([&] { return second.exit.has_value(); })) << "repeated until acknowledged";
  EXPECT_EQ(second.text, "kept\n");
  link->AckExit("cmd_1");
  ASSERT_TRUE(Until([&] { return host_.Find("m-1")->agent.unacked_exits() == 0; }));
  Do(link->Close());
  Get(machine->Destroy());
  EXPECT_TRUE(host_.ids().empty());
  Get(machine->Destroy());
}

}  // namespace
}  // namespace sandbar::engine
