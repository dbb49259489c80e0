// A microVM without the server around it: QEMU with the words, the kernel, the agent and the memory template that the
// spawner would use, started by hand: no jail, no network, no API. What the microVM engine is measured against.
//
//   restore --kernel DIR --guest FILE --image FILE.erofs --work DIR [--kvm] [--memory MIB] [--rounds N]
//
// For each line of its input one machine and one JSON object: milliseconds from the start of QEMU to the agent's first
// answer, of `true`, `node -e 1` and 300 files in it, and what it takes (after a while when the line is "idle"). Root;
// links the server's own libraries; bench/run.sh compiles and calls it.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "os/openat.h"
#include "os/process.h"
#include "protocol/guest_frames.h"
#include "spawner/machines/initramfs.h"
#include "spawner/machines/microvm.h"
#include "spawner/machines/vm_template.h"

namespace {

using namespace sandbar;
using namespace sandbar::protocol;
using Clock = std::chrono::steady_clock;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "restore: %s\n", what.c_str());
  std::exit(1);
}
template <class T>
T Must(Result<T> r) {
  if (!r) Die(r.error().message);
  return *std::move(r);
}
double MsSince(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

struct Bench {
  std::string kernel, guest, image, work, initramfs;
  spawner::Microvm vm;
  uint64_t memory = 2048;
  int rounds = 5;
};

std::vector<std::string> Words(const Bench& b, spawner::QemuMemory memory, const std::vector<std::string>& more) {
  std::vector<std::string> words = spawner::QemuMachine(b.vm, {b.memory, 1}, memory, false);
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "-kernel") words[i + 1] = b.kernel + "/kernel";
    if (words[i] == "-initrd") words[i + 1] = b.initramfs;
    if (words[i] == "-sandbox")
      words.erase(words.begin() + static_cast<ptrdiff_t>(i), words.begin() + static_cast<ptrdiff_t>(i) + 2);
  }
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// `keep` become 3, 4, …
pid_t StartQemu(std::vector<std::string> words, const std::vector<int>& keep) {
  pid_t pid = ::fork();
  if (pid < 0) Die("fork");
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<int> high;
  for (int fd : keep) high.push_back(::fcntl(fd, F_DUPFD_CLOEXEC, 100));
  for (size_t i = 0; i < high.size(); ++i) ::dup2(high[i], static_cast<int>(i) + 3);
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  ::execv("/usr/bin/qemu-system-x86_64", argv.data());
  ::_exit(127);
}

void End(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

std::pair<Fd, Fd> Pair(const std::string& filled = "") {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) Die("socketpair");
  if (!filled.empty() && ::send(pair[0], filled.data(), filled.size(), 0) != static_cast<ssize_t>(filled.size()))
    Die("send");
  return {Fd(pair[0]), Fd(pair[1])};
}

struct Listener {
  sockaddr_un address{};
  Fd fd;
  explicit Listener(const std::string& path) : fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ::unlink(path.c_str());
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(fd.get(), 1) != 0)
      Die("listen");
  }
  Fd Connect() const {
    Fd to(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(to.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) Die("connect");
    return to;
  }
};

void MakeTemplate(const Bench& b) {
  Listener listener(b.work + "/template.sock");
  Fd image = Must(os::OpenPath(b.image, O_RDONLY));
  Fd disk = Must(os::OpenPath(b.work + "/disk.0", O_RDWR));
  Fd ram = Must(os::OpenPath(b.work + "/ram", O_RDWR));
  auto config = Pair(), control = Pair();
  pid_t pid = StartQemu(
      Words(b, spawner::QemuMemory::kShared,
            {"-chardev", "socket,id=control,fd=9", "-mon", "chardev=control,mode=control"}),
      {image.get(), disk.get(), listener.fd.get(), config.first.get(), image.get(), ram.get(), control.first.get()});
  Fd state = Must(os::OpenPath(b.work + "/state", O_RDWR | O_CREAT | O_TRUNC));
  if (auto saved = spawner::SaveTemplate(control.second.get(), state.get()); !saved) Die(saved.error().message);
  End(pid);
}

std::string Config(const std::string& key) {
  VmConfig config;
  config.hostname = "sandbox";
  config.clock_ns = NowMs() * 1'000'000;
  config.entropy.resize(256);
  FillRandom(config.entropy.data(), config.entropy.size());
  config.key = key;
  config.restored = true;
  return EncodeVmConfig(config);
}

// One machine and the conversation with its agent.
class Machine {
 public:
  Machine(const Bench& b, int number) : listener_(b.work + "/agent.sock") {
    Fd image = Must(os::OpenPath(b.image, O_RDONLY));
    Fd disk = Must(os::OpenPath(b.work + "/disk." + std::to_string(number), O_RDWR));
    Fd ram = Must(os::OpenPath(b.work + "/ram", O_RDONLY));
    Fd state = Must(os::OpenPath(b.work + "/state", O_RDONLY));
    auto begin = Clock::now();
    config_ = Pair(Config("bench"));
    control_ = Pair(spawner::RestoreCommands(9));
    pid_ = StartQemu(
        Words(b, spawner::QemuMemory::kCopy,
              {"-incoming", "defer", "-chardev", "socket,id=control,fd=10", "-mon", "chardev=control,mode=control"}),
        {image.get(), disk.get(), listener_.fd.get(), config_.second.get(), image.get(), ram.get(), state.get(),
         control_.second.get()});
    agent_ = listener_.Connect();
    const uint64_t nonce = 42;
    Send(protocol::Encode(protocol::HostFrame(protocol::Hello{protocol::kOldestGuestVersion, nonce})));
    for (;;) {
      protocol::GuestFrame frame = Next();
      if (auto* ack = std::get_if<protocol::HelloAck>(&frame); ack != nullptr && ack->nonce == nonce) break;
    }
    started_ms = MsSince(begin);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { End(pid_); }

  double Run(std::vector<std::string> argv) {
    auto begin = Clock::now();
    protocol::Exec exec;
    exec.id = "c" + std::to_string(++commands_);
    exec.argv = std::move(argv);
    exec.env = {"PATH=/vercel/runtimes/node24/bin:/usr/local/bin:/usr/bin:/bin"};
    exec.cwd = "/tmp";
    Send(protocol::EncodeForStream(protocol::HostFrame(exec)));
    for (;;) {
      protocol::GuestFrame frame = Next();
      if (std::holds_alternative<protocol::ExecFailed>(frame)) Die(std::get<protocol::ExecFailed>(frame).message);
      auto* exit = std::get_if<protocol::Exit>(&frame);
      if (exit == nullptr) continue;
      if (exit->code != 0) Die(exec.argv[0] + " failed with " + std::to_string(exit->code));
      double took = MsSince(begin);
      Send(protocol::EncodeForStream(protocol::HostFrame(protocol::ExitAck{exec.id})));
      return took;
    }
  }
  uint64_t PssKib() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/smaps_rollup");
    for (std::string word; file >> word;)
      if (uint64_t n = 0; word == "Pss:" && file >> n) return n;
    return 0;
  }
  double started_ms = 0;

 private:
  void Send(const std::string& bytes) const {
    if (::send(agent_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
      Die("tell the agent");
  }
  protocol::GuestFrame Next() {
    for (;;) {
      protocol::GuestFrame frame;
      if (Must(decoder_.Next(frame))) return frame;
      std::array<char, 65536> piece{};
      ssize_t n = ::recv(agent_.get(), piece.data(), piece.size(), 0);
      if (n <= 0) Die("the machine ended");
      decoder_.Feed({piece.data(), static_cast<size_t>(n)});
    }
  }

  Listener listener_;
  std::pair<Fd, Fd> config_, control_;
  pid_t pid_ = 0;
  Fd agent_;
  protocol::FrameDecoder<protocol::GuestFrame> decoder_;
  int commands_ = 0;
};

Bench Parse(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--kvm")
      given[name] = "yes";
    else if (i + 1 < argc)
      given[name] = argv[++i];
  }
  Bench b;
  b.kernel = given["--kernel"], b.guest = given["--guest"], b.image = given["--image"], b.work = given["--work"];
  if (b.kernel.empty() || b.guest.empty() || b.image.empty() || b.work.empty())
    Die("--kernel, --guest, --image, --work");
  b.vm.kvm = given.contains("--kvm");
  if (given.contains("--memory")) b.memory = std::stoull(given["--memory"]);
  if (given.contains("--rounds")) b.rounds = std::stoi(given["--rounds"]);
  return b;
}

void Prepare(Bench& b) {
  std::vector<std::pair<std::string, std::string>> modules;
  std::ifstream list(b.kernel + "/modules.list");
  for (std::string name; std::getline(list, name);)
    modules.emplace_back(name, Must(os::ReadFile(b.kernel + "/modules/" + name, 64 << 20)));
  b.vm.modules = !modules.empty();
  b.vm.tsc_khz = spawner::MeasureTscKhz();
  b.initramfs = b.work + "/initramfs";
  std::ofstream(b.initramfs, std::ios::binary)
      << spawner::MakeInitramfs(Must(os::ReadFile(b.guest, 64 << 20)), modules);
  for (const char* name : {"/ram", "/state"}) std::ofstream(b.work + name).flush();
  if (::truncate((b.work + "/ram").c_str(), static_cast<off_t>(b.memory << 20)) != 0) Die("ram");
  // Made before: only the start counts.
  for (int i = 0; i <= b.rounds; ++i) {
    std::string disk = b.work + "/disk." + std::to_string(i);
    std::ofstream(disk).flush();
    if (::truncate(disk.c_str(), 8LL << 30) != 0) Die("disk");
    auto made = os::RunProgram({"mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1", disk});
    if (!made) Die(made.error().message);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  Bench b = Parse(argc, argv);
  Prepare(b);
  MakeTemplate(b);
  std::string line;
  for (int i = 1; i <= b.rounds && std::getline(std::cin, line); ++i) {
    Machine machine(b, i);
    if (line == "idle") ::sleep(2);
    const uint64_t idle = machine.PssKib();
    const double nothing = machine.Run({"true"});
    const double node = machine.Run({"node", "-e", "1"});
    const double churn =
        machine.Run({"sh", "-c", "mkdir d && for i in $(seq 300); do echo $i > d/$i; done && rm -r d"});
    std::printf(R"({"create":%.2f,"true":%.2f,"node":%.2f,"churn":%.2f,"idle":%llu})", machine.started_ms, nothing,
                node, churn, static_cast<unsigned long long>(idle));
    std::printf("\n");
    std::fflush(stdout);
  }
}
