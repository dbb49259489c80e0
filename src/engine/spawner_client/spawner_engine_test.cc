// The engine contract on real machines with the real agent (root, busybox-static, the built sandbar-guest).
#include "engine/spawner_client/spawner_engine.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <fstream>

#include "engine/guest_link/guest_link.h"
#include "spawner/program.h"

namespace sandbar::engine {
namespace {

namespace fs = std::filesystem;

class Recorder : public GuestEvents {
 public:
  explicit Recorder(const asio::any_io_executor& ex) : changed(ex) {}
  void OnOutput(const std::string&, uint64_t, uint8_t, std::string_view bytes) override {
    output += bytes;
    changed.Notify();
  }
  void OnGap(const std::string&, uint64_t, uint64_t) override {}
  void OnExit(const protocol::Exit& e) override {
    exit = e;
    changed.Notify();
  }
  void OnClosed(const Error& why) override {
    closed = why.message;
    changed.Notify();
  }
  std::string output, closed;
  std::optional<protocol::Exit> exit;
  Event changed;
};

class SpawnerEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    GTEST_SKIP()
        << "a spawner needs one thread to enter user namespaces; the sanitizer starts a second in its children";
#endif
#endif
    ASSERT_EQ(::geteuid(), 0U) << "these tests need root";
    std::string pattern = "/var/tmp/sandbar-engine-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    fs::permissions(dir_, fs::perms(0755));
    std::string layer = dir_ + "/images/layers/tiny";
    for (const char* d : {"bin", "etc", "root"}) fs::create_directories(layer + "/" + d);
    std::string busybox = ::access("/bin/busybox", X_OK) == 0 ? "/bin/busybox" : "/usr/bin/busybox";
    ASSERT_EQ(::access(busybox.c_str(), X_OK), 0) << "apt-get install busybox-static";
    fs::copy_file(busybox, layer + "/bin/busybox");
    for (const char* applet : {"sh", "echo", "sleep", "stty", "stat", "tty", "cat"})
      fs::create_symlink("busybox", layer + "/bin/" + applet);
    std::ofstream(layer + "/etc/passwd") << "root:x:0:0::/root:/bin/sh\n";
    std::string guest = std::string(SB_BINARY_DIR) + "/bin/sandbar-guest";
    ASSERT_EQ(::access(guest.c_str(), X_OK), 0) << "build sandbar-guest first";
    pid_t starter = ::fork();
    if (starter == 0)
      ::_exit(spawner::RunSpawner({"--data", dir_ + "/data", "--images", dir_ + "/images", "--guest", guest,
                                   "--daemon-uid", "0", "--daemon-gid", "0", "--disk-pool-bytes", "1073741824",
                                   "--scanner", std::string(SB_BINARY_DIR) + "/bin/sandbar-scanner", "--ephemeral"}));
    int status = 0;
    ASSERT_EQ(::waitpid(starter, &status, 0), starter);
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
  void TearDown() override {
    // Ephemeral: it ends when the engine is gone, and its files with the directory.
    std::error_code ec;
    for (int i = 0; i < 1000 && fs::exists(dir_ + "/data/run/spawner.sock"); ++i) ::usleep(10'000);
    EXPECT_FALSE(fs::exists(dir_ + "/data/run/spawner.sock"));
    fs::remove_all(dir_, ec);
  }
  void RunTask(Task<> task) {
    std::optional<Result<>> out;
    asio::co_spawn(io_, std::move(task), [&](std::exception_ptr e, Result<> r) {
      SB_CHECK(!e);
      out = std::move(r);
    });
    io_.run();
    ASSERT_TRUE(out.has_value());
    EXPECT_TRUE(out->has_value()) << out->error().message;
  }
  std::string socket() const { return dir_ + "/data/run/spawner.sock"; }
  static BootRequest Small(std::string id) {
    BootRequest r;
    r.machine_id = std::move(id);
    r.limits = {1, 256 << 20, 128, 64 << 20};
    return r;
  }
  static Rootfs Tiny() {
    Rootfs r;
    r.layers = {"tiny"};
    r.image_digest = "sha256:0";
    return r;
  }

  std::string dir_;
  asio::io_context io_;
};

Task<> RunEcho(Machine* machine, Recorder* recorder) {
  SB_CO_TRY(auto socket, co_await machine->Connect());
  SB_CO_TRY(auto link, co_await OpenGuestLink(std::move(socket), recorder));
  protocol::Exec exec;
  exec.id = "c1";
  exec.argv = {"/bin/sh", "-c", "echo hello from $$"};
  exec.env = {"PATH=/bin"};
  exec.cwd = "/";
  auto started = co_await link->Exec(std::move(exec));
  while (started && !recorder->exit && recorder->closed.empty()) {
    auto changed = co_await recorder->changed.Wait();
    if (!changed) break;
  }
  co_await link->Close();
  if (!started) co_return std::unexpected(std::move(started).error());
  co_return Result<>{};
}

Task<> LifeOfAMachine(std::string path, BootRequest boot, Rootfs rootfs, Recorder* recorder) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(auto engine, co_await ConnectSpawnerEngine(ex, std::move(path)));
  EXPECT_EQ(engine->info().isolation_class, 1);
  SB_CO_TRY(auto machine, co_await engine->Boot(std::move(boot)));
  auto network = machine->TakeNetwork();
  EXPECT_TRUE(network.tcp_listener && network.dns);
  MachineSpec spec;
  spec.hostname = "box";
  SB_CO_TRYV(co_await machine->Configure(std::move(rootfs), std::move(spec)));
  SB_CO_TRYV(co_await RunEcho(machine.get(), recorder));
  SB_CO_TRYV(co_await machine->Pause());
  SB_CO_TRYV(co_await machine->Resume());
  SB_CO_TRY(auto usage, co_await machine->GetUsage());
  EXPECT_GT(usage.cpu_ns, 0U);
  SB_CO_TRY(auto list, co_await engine->List());
  EXPECT_EQ(list.size(), 1U);
  EXPECT_EQ(list.at(0).state, MachineState::kConfigured);
  SB_CO_TRY(auto last, co_await machine->Destroy());
  EXPECT_GE(last.cpu_ns, usage.cpu_ns);
  SB_CO_TRYV(co_await machine->WaitExit());
  SB_CO_TRYV(co_await machine->Destroy());
  SB_CO_TRY(list, co_await engine->List());
  EXPECT_TRUE(list.empty());
  co_return Result<>{};
}

TEST_F(SpawnerEngineTest, BootConfigureRunDestroy) {
  Recorder recorder(io_.get_executor());
  RunTask(LifeOfAMachine(socket(), Small("m1"), Tiny(), &recorder));
  EXPECT_TRUE(recorder.output.starts_with("hello from ")) << recorder.output;
  ASSERT_TRUE(recorder.exit);
  EXPECT_EQ(recorder.exit->code, 0);
}

Task<> TypeIn(Machine* machine, Recorder* recorder) {
  SB_CO_TRY(auto socket, co_await machine->Connect());
  SB_CO_TRY(auto link, co_await OpenGuestLink(std::move(socket), recorder));
  protocol::Exec exec;
  exec.id = "t";
  exec.argv = {"/bin/sh", "-c",
               "tty; stty size; stat -c '%u:%g %a' $(tty); echo to the tty >/dev/tty; read line; echo got $line; "
               "trap 'exit 42' INT; while :; do sleep 0.1; done"};
  exec.env = {"PATH=/bin"};
  exec.cwd = "/";
  exec.uid = exec.gid = 1000;
  exec.terminal = protocol::TerminalSize{132, 43};
  SB_CO_TRYV(co_await link->Exec(std::move(exec)));
  while (!recorder->output.contains("to the tty") && recorder->closed.empty() && !recorder->exit) {
    SB_CO_TRYV(co_await recorder->changed.Wait());
  }
  SB_CO_TRYV(co_await link->WriteStdin("t", 0, "a line\r"));
  while (!recorder->output.contains("got a line") && recorder->closed.empty() && !recorder->exit) {
    SB_CO_TRYV(co_await recorder->changed.Wait());
  }
  while (!recorder->exit && recorder->closed.empty()) {
    // Until the shell has its trap, the key would end it in another way.
    auto wait = recorder->changed.Wait();
    static_cast<void>(co_await WithTimeout(std::move(wait), std::chrono::milliseconds(300)));
    auto state = link->Stdin("t");
    if (state && !recorder->exit) SB_CO_TRYV(co_await link->WriteStdin("t", state->accepted, "\x03"));
  }
  co_await link->Close();
  co_return Result<>{};
}

Task<> TerminalInAMachine(std::string path, BootRequest boot, Rootfs rootfs, Recorder* recorder) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(auto engine, co_await ConnectSpawnerEngine(ex, std::move(path)));
  SB_CO_TRY(auto machine, co_await engine->Boot(std::move(boot)));
  MachineSpec spec;
  SB_CO_TRYV(co_await machine->Configure(std::move(rootfs), std::move(spec)));
  SB_CO_TRYV(co_await TypeIn(machine.get(), recorder));
  SB_CO_TRYV(co_await machine->Destroy());
  co_return Result<>{};
}

TEST_F(SpawnerEngineTest, ACommandHasATerminalOfItsMachine) {
  Recorder recorder(io_.get_executor());
  RunTask(TerminalInAMachine(socket(), Small("m1"), Tiny(), &recorder));
  EXPECT_TRUE(recorder.output.contains("/dev/pts/0\r\n43 132\r\n1000:5 620\r\nto the tty\r\n")) << recorder.output;
  EXPECT_TRUE(recorder.output.contains("got a line\r\n")) << recorder.output;
  ASSERT_TRUE(recorder.exit);
  EXPECT_EQ(recorder.exit->code, 42);
}

Task<> Deadline(std::string path, BootRequest boot, Rootfs rootfs) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(auto engine, co_await ConnectSpawnerEngine(ex, std::move(path)));
  SB_CO_TRY(auto machine, co_await engine->Boot(std::move(boot)));
  MachineSpec spec;
  SB_CO_TRYV(co_await machine->Configure(std::move(rootfs), std::move(spec)));
  SB_CO_TRYV(co_await machine->SetDeadline(std::chrono::milliseconds(1)));
  SB_CO_TRYV(co_await machine->WaitExit());
  SB_CO_TRY(auto again, co_await engine->Attach(machine->id()));
  SB_CO_TRYV(co_await again->WaitExit());
  auto missing = co_await engine->Attach("nobody");
  EXPECT_FALSE(missing);
  SB_CO_TRYV(co_await machine->Destroy());
  co_return Result<>{};
}

TEST_F(SpawnerEngineTest, TheDeadlineEndsAMachineAndEveryWait) {
  RunTask(Deadline(socket(), Small("m1"), Tiny()));
}

Task<> Shutdown(std::string path, BootRequest boot, Rootfs rootfs) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(auto engine, co_await OpenSpawnerEngine(ex, std::move(path)));
  EXPECT_FALSE(engine->spawner().instance.empty());
  EXPECT_FALSE(engine->spawner().cgroup.empty());
  SB_CO_TRY(auto machine, co_await engine->Boot(std::move(boot)));
  MachineSpec spec;
  SB_CO_TRYV(co_await machine->Configure(std::move(rootfs), std::move(spec)));
  SB_CO_TRYV(co_await engine->Shutdown());
  auto lost = co_await machine->WaitExit();
  EXPECT_FALSE(lost);
  auto usage = co_await machine->GetUsage();
  EXPECT_EQ(usage.error().code, Code::kUnavailable);
  co_return Result<>{};
}

TEST_F(SpawnerEngineTest, AfterShutdownNothingPretendsToLive) {
  RunTask(Shutdown(socket(), Small("m1"), Tiny()));
}

}  // namespace
}  // namespace sandbar::engine
