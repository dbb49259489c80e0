// For tests of the link against the real agent: sandbar-guest as PID 1 of a PID namespace. Needs root and the built
// program.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "base/fd.h"
#include "support/guest_link/scripted_agent.h"

namespace sandbar::engine {

inline std::string AgentBinary() {
  auto self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path().parent_path() / "bin" / "sandbar-guest";
}

class AgentMachine {
 public:
  // `stream`: one socket pair instead of a listener.
  explicit AgentMachine(bool stream = false) {
    char name[] = "/tmp/sandbar-link-test-XXXXXX";
    Must(::mkdtemp(name) != nullptr && ::chmod(name, 0777) == 0, "temporary directory");
    dir_ = name;
    Fd listener(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un addr{};
    addr.sun_family = AF_UNIX;
    std::strncpy(addr.sun_path, socket_path().c_str(), sizeof addr.sun_path - 1);
    Must(::bind(listener.get(), reinterpret_cast<sockaddr*>(&addr), sizeof addr) == 0, "bind");
    Must(::listen(listener.get(), 8) == 0, "listen");
    int pair[2];
    Must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    Fd theirs(pair[1]);
    if (stream) stream_ = Fd(pair[0]);
    pid_ = static_cast<pid_t>(::syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, nullptr, nullptr, nullptr, 0));
    Must(pid_ >= 0, "clone (root needed)");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Must(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "private mounts");
    Must(::mount("proc", "/proc", "proc", 0, nullptr) == 0, "mount /proc");
    Must(::dup2(stream ? theirs.get() : listener.get(), 100) == 100, "dup");
    std::string binary = AgentBinary();
    ::execl(binary.c_str(), binary.c_str(), stream ? "--stream-fd" : "--listen-fd", "100", nullptr);
    Must(false, "exec of the agent");
  }
  ~AgentMachine() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  AgentMachine(const AgentMachine&) = delete;
  const std::string& dir() const { return dir_; }
  std::string socket_path() const { return dir_ + "/agent.sock"; }
  pid_t pid() const { return pid_; }
  const Fd& stream() const { return stream_; }

 private:
  static void Must(bool holds, const char* what) {
    if (holds) return;
    std::perror(what);
    std::abort();
  }
  std::string dir_;
  Fd stream_;
  pid_t pid_ = 0;
};

class AgentTest : public ::testing::Test {
 public:
  AgentTest() : events_(io_.get_executor()) {}
  void SetUp() override {
    if (!std::filesystem::exists(AgentBinary())) GTEST_SKIP() << "sandbar-guest is not built";
    machine_ = std::make_unique<AgentMachine>();
  }
  void Run(asio::awaitable<void> scenario) { RunScenario(io_, std::move(scenario)); }

  asio::awaitable<void> Open() {
    Socket socket(io_);
    if (machine_->stream()) {
      socket.assign(asio::local::stream_protocol(), ::dup(machine_->stream().get()));
    } else {
      asio::local::stream_protocol::endpoint at(machine_->socket_path());
      auto [ec] = co_await socket.async_connect(at, kToken);
      EXPECT_FALSE(ec);
    }
    auto opened = co_await OpenGuestLink(std::move(socket), &events_);
    EXPECT_TRUE(opened) << opened.error().message;
    link_ = *std::move(opened);
    events_.link = link_.get();
  }
  asio::awaitable<void> Close() {
    co_await link_->Close();
    events_.link = nullptr;
    link_.reset();
  }
  asio::awaitable<void> Exec(std::string id, std::string script) {
    auto request = MakeExec(std::move(id), {"sh", "-c", std::move(script)});
    auto r = co_await link_->Exec(std::move(request));
    EXPECT_TRUE(r) << r.error().message;
  }

  asio::io_context io_;
  Recorder events_;
  std::unique_ptr<AgentMachine> machine_;
  std::unique_ptr<GuestLink> link_;
};

}  // namespace sandbar::engine
