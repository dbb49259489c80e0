// For tests: the agent as PID 1 of a fresh PID and mount namespace, and a blocking client that speaks frames with it.
// Needs root. The namespace dies with the TestMachine, and with the test process.
//
//   TestMachine machine;
//   TestClient client(machine);
//   auto r = client.Run({"sh", "-c", "echo hi"});   // r.out == "hi\n", r.exit.code == 0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "guest/agent.h"
#include "protocol/guest_frames.h"

namespace sandbar::guest {

inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "test set-up: %s: %s\n", what, std::strerror(errno));
  std::abort();
}

inline std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

inline void WriteWhole(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct MachineOptions {
  std::string groups = "root:x:0:\nusers:x:4242:eve,adam\n";
  std::chrono::milliseconds worker_stall{20000};
  bool break_join = false;   // the cgroup cannot be joined
  bool real_binary = false;  // exec the static program instead of running the sanitized code
  // Of the agent's options; in the machine's directory. Processes ask at "door", and load our library.
  std::string elevated;
  bool stream = false;  // one socket pair for all clients, see TestMachine::stream()
};

class TestMachine {
 public:
  explicit TestMachine(MachineOptions options = {}) {
    char name[] = "/tmp/sandbar-guest-test-XXXXXX";
    Require(::mkdtemp(name) != nullptr, "mkdtemp");
    dir_ = name;
    Require(::chmod(name, 0777) == 0, "chmod");
    WriteWhole(dir_ + "/group", options.groups);
    WriteWhole(dir_ + "/joined", "");
    Listen();
    if (options.stream) {
      int pair[2];
      Require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
      stream_ = Fd(pair[0]);
      agent_stream_ = Fd(pair[1]);
    }
    int how = options.break_join ? O_RDONLY : O_WRONLY | O_APPEND;
    Fd join(::open((dir_ + "/joined").c_str(), how | O_CLOEXEC));
    pid_ = static_cast<pid_t>(::syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, nullptr, nullptr, nullptr, 0));
    Require(pid_ >= 0, "clone (root needed)");
    if (pid_ == 0) Child(options, std::move(join));
    listener_.Reset();
    agent_stream_.Reset();
  }
  ~TestMachine() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  TestMachine(const TestMachine&) = delete;

  const std::string& dir() const { return dir_; }  // the same path inside and outside, writable by everybody
  std::string socket_path() const { return dir_ + "/agent.sock"; }
  pid_t pid() const { return pid_; }
  const Fd& stream() const { return stream_; }
  bool alive() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }

  static std::string BinaryPath() {
    auto self = std::filesystem::read_symlink("/proc/self/exe");
    return self.parent_path().parent_path() / "bin" / "sandbar-guest";
  }

 private:
  void Listen() {
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un addr{};
    addr.sun_family = AF_UNIX;
    std::strncpy(addr.sun_path, socket_path().c_str(), sizeof addr.sun_path - 1);
    Require(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&addr), sizeof addr) == 0, "bind");
    Require(::listen(listener_.get(), 8) == 0, "listen");
  }

  [[noreturn]] void Child(const MachineOptions& options, Fd join) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Require(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "private mounts");
    Require(::mount("proc", "/proc", "proc", 0, nullptr) == 0, "mount /proc");
    Require(::mount((dir_ + "/group").c_str(), "/etc/group", nullptr, MS_BIND, nullptr) == 0, "bind /etc/group");
    if (options.real_binary) {
      std::string binary = BinaryPath();
      ::dup2(join.get(), 201);
      if (options.stream) {
        ::dup2(agent_stream_.get(), 0);
        ::execl(binary.c_str(), binary.c_str(), "--stream-fd", "0", "--join-fds", "201", nullptr);
      }
      ::dup2(listener_.get(), 200);
      ::execl(binary.c_str(), binary.c_str(), "--listen-fd", "200", "--join-fds", "201", nullptr);
      Require(false, "exec of the agent");
    }
    Require(::chdir("/") == 0, "chdir");
    AgentOptions agent_options;
    if (options.stream)
      agent_options.stream = std::move(agent_stream_);
    else
      agent_options.listener = std::move(listener_);
    stream_.Reset();
    agent_options.join_fds.push_back(std::move(join));
    agent_options.worker_stall = options.worker_stall;
    if (!options.elevated.empty()) {
      agent_options.elevated = dir_ + "/" + options.elevated;
      agent_options.elevate_at = dir_ + "/door";
      Preload();
    }
    Agent agent(std::move(agent_options));
    agent.Run();
  }

  // For every program that is executed in the machine; setuid bits in its directory do not count.
  void Preload() {
    Require(::mount(dir_.c_str(), dir_.c_str(), nullptr, MS_BIND, nullptr) == 0, "bind");
    Require(::mount("none", dir_.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_NOSUID, nullptr) == 0, "nosuid");
    const std::string layer = dir_ + "/etc";
    Require(::mkdir(layer.c_str(), 0755) == 0, "mkdir");
    Require(::mount("tmpfs", layer.c_str(), "tmpfs", 0, nullptr) == 0, "mount tmpfs");
    for (const char* name : {"/up", "/work"}) Require(::mkdir((layer + name).c_str(), 0755) == 0, "mkdir");
    std::filesystem::copy_file(
        BinaryPath().replace(BinaryPath().rfind('/') + 1, std::string::npos, "sandbar-preload.so"),
        dir_ + "/preload.so");
    WriteWhole(layer + "/up/ld.so.preload", dir_ + "/preload.so\n");
    WriteWhole(layer + "/up/group", ReadWhole("/etc/group"));
    const std::string data = "lowerdir=/etc,upperdir=" + layer + "/up,workdir=" + layer + "/work";
    Require(::mount("overlay", "/etc", "overlay", 0, data.c_str()) == 0, "mount overlay");
  }

  std::string dir_;
  Fd listener_, stream_, agent_stream_;
  pid_t pid_ = 0;
};

struct Finished {
  std::string out, err, channel;
  protocol::Exit exit;
  uint64_t gap = 0;
  bool failed = false;
  protocol::ExecFailed failure;
  std::optional<protocol::ExecFailed> refused;  // of another command, meanwhile
};

class TestClient {
 public:
  // `newest`: of the versions that it speaks.
  explicit TestClient(const TestMachine& machine, bool hello = true, uint64_t nonce = 77,
                      uint32_t newest = protocol::GuestVersions().newest)
      : newest_(newest) {
    if (machine.stream()) {
      fd_ = Fd(::dup(machine.stream().get()));
      if (hello) HelloOnStream(nonce);
      return;
    }
    fd_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un addr{};
    addr.sun_family = AF_UNIX;
    std::strncpy(addr.sun_path, machine.socket_path().c_str(), sizeof addr.sun_path - 1);
    Require(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&addr), sizeof addr) == 0, "connect");
    if (!hello) return;
    Send(protocol::Hello{protocol::kOldestGuestVersion, 77, newest_});
    hello_ = Expect<protocol::HelloAck>();
    EXPECT_EQ(hello_.nonce, 77u);
  }

  const protocol::HelloAck& hello() const { return hello_; }
  void Send(const protocol::HostFrame& frame) {
    bool hello = std::holds_alternative<protocol::Hello>(frame);
    SendRaw(decoder_.stream() && !hello ? protocol::EncodeForStream(frame) : protocol::Encode(frame));
  }
  void SendRaw(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  // The next frame; nothing when the agent closed the connection or said nothing for `ms`.
  std::optional<protocol::GuestFrame> Receive(int ms = 60000) {
    protocol::GuestFrame frame;
    for (;;) {
      auto got = decoder_.Next(frame);
      EXPECT_TRUE(got) << got.error().message;
      if (!got) return std::nullopt;
      if (*got) return frame;
      pollfd p{fd_.get(), POLLIN, 0};
      if (::poll(&p, 1, ms) <= 0) return std::nullopt;
      char buffer[65536];
      ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
      if (n <= 0) {
        closed_ = true;
        return std::nullopt;
      }
      decoder_.Feed(std::string_view(buffer, static_cast<size_t>(n)));
    }
  }
  template <class M>
  M Expect() {
    auto frame = Receive();
    if (!frame) {
      ADD_FAILURE() << "no frame";
      Require(++missed_ < 20, "the agent is gone");  // a test that counts bytes would loop for ever
      return M{};
    }
    if (auto* m = std::get_if<M>(&*frame)) return *m;
    ADD_FAILURE() << "frame of kind " << frame->index();
    return M{};
  }
  // True when the agent ends the connection (what it sends before does not matter).
  bool Closed() {
    while (Receive()) {
    }
    return closed_;
  }

  static protocol::Exec Command(std::string id, std::vector<std::string> argv) {
    protocol::Exec e;
    e.id = std::move(id);
    e.argv = std::move(argv);
    e.env = {"PATH=/usr/local/bin:/usr/bin:/bin"};
    e.cwd = "/";
    return e;
  }
  // Until the Exit of `id`, acknowledging everything.
  Finished Finish(const std::string& id, bool ack_exit = true) {
    Finished r;
    while (auto frame = Receive()) {
      if (auto* failed = std::get_if<protocol::ExecFailed>(&*frame); failed != nullptr && failed->id != id) {
        r.refused = *failed;
      } else if (failed != nullptr) {
        r.failed = true;
        r.failure = *failed;
        return r;
      }
      if (auto* o = std::get_if<protocol::Output>(&*frame); o != nullptr && o->id == id) {
        (o->stream == 1 ? r.out : o->stream == 2 ? r.err : r.channel) += o->bytes;
        Send(protocol::Ack{id, o->offset + o->bytes.size()});
      }
      if (auto* g = std::get_if<protocol::Gap>(&*frame); g != nullptr && g->id == id) {
        r.gap += g->bytes;
        Send(protocol::Ack{id, g->offset + g->bytes});
      }
      if (auto* e = std::get_if<protocol::Exit>(&*frame); e != nullptr && e->id == id) {
        r.exit = *e;
        if (ack_exit) Send(protocol::ExitAck{id});
        return r;
      }
    }
    ADD_FAILURE() << "the connection ended before the command";
    return r;
  }
  Finished RunExec(const protocol::Exec& e) {
    Send(e);
    return Finish(e.id);
  }
  Finished Run(std::vector<std::string> argv) {
    return RunExec(Command("run-" + std::to_string(next_id_++), std::move(argv)));
  }
  Finished Shell(const std::string& script) { return Run({"sh", "-c", script}); }

 private:
  // What earlier clients left unread comes first.
  void HelloOnStream(uint64_t nonce) {
    Send(protocol::Hello{protocol::kOldestGuestVersion, nonce, newest_});
    while (auto frame = Receive()) {
      if (auto* ack = std::get_if<protocol::HelloAck>(&*frame); ack != nullptr && ack->nonce == nonce) hello_ = *ack;
      if (hello_.nonce == nonce) return;
    }
    ADD_FAILURE() << "no hello";
  }

  Fd fd_;
  uint32_t newest_;
  protocol::FrameDecoder<protocol::GuestFrame> decoder_;
  protocol::HelloAck hello_;
  bool closed_ = false;
  int next_id_ = 1;
  int missed_ = 0;
};

// Polls until `holds`; a hang guard, not a time limit.
inline bool Eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 3000; ++i) {
    if (holds()) return true;
    ::usleep(20000);
  }
  return false;
}

}  // namespace sandbar::guest
