#include "support/spawner/test_harness.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/files.h"
#include "os/openat.h"
#include "os/process.h"
#include "os/unix_socket.h"
#include "spawner/program.h"
#include "support/spawner/test_agent.h"

namespace sandbar::spawner {
namespace fs = std::filesystem;
namespace {

constexpr int kPatienceMs = 60'000;

Result<> WaitReadable(int fd) {
  pollfd p{fd, POLLIN, 0};
  int n = ::poll(&p, 1, kPatienceMs);
  if (n < 0) return FailErrno("poll");
  if (n == 0) return Fail(Code::kTimeout, "no answer");
  return {};
}

// The switch that runs every test that does not look into class 1's own works on gVisor.
bool OnGvisor() {
  const char* engine = std::getenv("SANDBAR_TEST_ISOLATION");
  return engine != nullptr && std::string(engine) == "gvisor";
}

bool LastLineIsExit(const std::string& out) {
  if (out.size() < 2 || out.back() != '\n') return false;
  size_t before = out.rfind('\n', out.size() - 2);
  return out.compare(before == std::string::npos ? 0 : before + 1, 5, "exit:") == 0;
}

std::string FindBusybox() {
  for (const char* path : {"/bin/busybox", "/usr/bin/busybox"}) {
    if (::access(path, X_OK) == 0) return path;
  }
  return {};
}

}  // namespace

Result<TaggedResponse> TestClient::Next(std::vector<Fd>* fds) {
  for (;;) {
    SB_TRYV(WaitReadable(socket_.get()));
    SB_TRY(auto packet, os::ReceivePacket(socket_.get(), kMaxMessage, true));
    if (!packet) continue;
    *fds = std::move(packet->fds);
    return DecodeResponse(packet->bytes);
  }
}

void TestClient::Send(Request request, uint32_t tag) {
  auto sent = os::SendPacket(socket_.get(), Encode(TaggedRequest{tag, std::move(request)}), {});
  SB_CHECK(sent && *sent);
}

Result<> TestClient::Pause(const std::string& machine) {
  auto done = Call(PauseReq{machine, true});
  for (int i = 0; i < 100 && !done && done.error().code == Code::kUnavailable; ++i)
    done = Call(PauseReq{machine, true});
  if (!done) return std::unexpected(std::move(done).error());
  return {};
}

std::string MakeWritable(const std::string& snapshot) {
  const std::string path = "snapshots/" + snapshot;
  return "until btrfs property get -t subvol " + path +
         " ro | grep -qx ro=true; do sleep 0.02; done; btrfs property set -f " + path + " ro false; ";
}

Result<Answer> TestClient::Call(Request request) {
  uint32_t tag = next_tag_++;
  // Not Send(): a refused connection may be closed already, and that is an answer, not a bug.
  SB_TRYV(os::SendPacket(socket_.get(), Encode(TaggedRequest{tag, std::move(request)}), {}));
  for (;;) {
    Answer answer;
    SB_TRY(TaggedResponse response, Next(&answer.fds));
    if (response.tag == 0) {
      events_.push_back(std::get<ExitedEvent>(response.body));
      continue;
    }
    if (response.tag != tag) return Fail(Code::kProtocol, "answer to another request");
    if (auto* e = std::get_if<ErrorResp>(&response.body))
      return std::unexpected(Error{static_cast<Code>(e->code), e->message, e->sys_errno});
    answer.body = std::move(response.body);
    return answer;
  }
}

Result<ExitedEvent> TestClient::NextEvent() {
  if (events_.empty()) {
    std::vector<Fd> fds;
    SB_TRY(TaggedResponse response, Next(&fds));
    if (response.tag != 0) return Fail(Code::kProtocol, "expected an event");
    return std::get<ExitedEvent>(response.body);
  }
  ExitedEvent event = events_.front();
  events_.pop_front();
  return event;
}

std::vector<std::string> TestHost::Leftovers() {
  std::vector<std::string> found;
  auto text = os::ReadFile(data() + "/instance-id", 64);
  std::string instance = text ? text->substr(0, text->find('\n')) : "no instance";
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(dir_) != std::string::npos || line.find("/run/sandbar") != std::string::npos) found.push_back(line);
  }
  // The instance's own group may stay; machines in it may not. Those of others come and go meanwhile: then once more.
  std::error_code gone = std::make_error_code(std::errc::interrupted);
  std::vector<std::string> groups;
  while (gone) {
    groups.clear();
    for (auto it = fs::recursive_directory_iterator("/sys/fs/cgroup", gone); it != fs::end(it); it.increment(gone)) {
      std::error_code ec;
      if (it->is_directory(ec) && it->path().string().find(instance + "/") != std::string::npos)
        groups.push_back(it->path());
    }
  }
  found.insert(found.end(), groups.begin(), groups.end());
  for (const auto& e : fs::directory_iterator("/sys/block")) {
    std::ifstream backing(e.path() / "loop/backing_file");
    std::string line;
    if (std::getline(backing, line) && line.find(dir_) != std::string::npos) found.push_back(line);
  }
  return found;
}

Result<std::unique_ptr<TestHost>> TestHost::Create() {
  if (::geteuid() != 0) return Fail(Code::kForbidden, "these tests need root");
  std::string pattern = "/var/tmp/sandbar-spawner-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) return FailErrno("mkdtemp");
  ::chmod(pattern.c_str(), 0755);
  std::unique_ptr<TestHost> host(new TestHost(pattern));
  SB_TRYV(host->MakeImage());
  SB_TRYV(host->MakeAgent(kTestAgent));
  if (OnGvisor()) host->UseGvisor();
  return host;
}

TestHost::~TestHost() {
  if (SpawnerAlive()) StopSpawner();
  std::error_code ec;
  fs::remove_all(dir_, ec);
}

Result<> TestHost::MakeImage() {
  std::string busybox = FindBusybox();
  if (busybox.empty()) return Fail(Code::kNotFound, "busybox is missing (apt-get install busybox-static)");
  std::string layer = images() + "/layers/tiny";
  std::error_code ec;
  for (const char* d : {"bin", "etc", "root", "home/user", "opt/moved"}) fs::create_directories(layer + "/" + d, ec);
  fs::copy_file(busybox, layer + "/bin/busybox", ec);
  if (ec) return FailErrno("copy busybox", ec.value());
  for (const char* applet :
       {"sh", "cat",   "echo", "id", "ls",   "mount",    "umount", "stat", "nproc", "hostname", "sleep", "mkdir",
        "mv", "touch", "dd",   "rm", "grep", "readlink", "kill",   "wc",   "chmod", "head",     "true"})
    fs::create_symlink("busybox", layer + "/bin/" + applet, ec);
  std::ofstream(layer + "/opt/moved/file") << "from the image\n";
  if (::chown((layer + "/home/user").c_str(), 1000, 1000) != 0) return FailErrno("chown");
  std::ofstream(layer + "/etc/passwd") << "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n";
  return {};
}

void TestHost::UseAgent(const std::string& source) {
  SB_CHECK(MakeAgent(source).has_value());
}

Result<> TestHost::MakeAgent(const std::string& source) {
  std::ofstream(dir_ + "/agent.c") << source;
  return os::RunProgram({"clang-19", "-O1", "-static", "-o", dir_ + "/agent", dir_ + "/agent.c"});
}

int TestHost::StartSpawner(const std::vector<std::string>& extra) {
  std::vector<std::string> args = {"--data",
                                   data(),
                                   "--images",
                                   images(),
                                   "--guest",
                                   dir_ + "/agent",
                                   "--stage",
                                   std::string(SB_BINARY_DIR) + "/bin/sandbar-guest",
                                   "--daemon-uid",
                                   "0",
                                   "--daemon-gid",
                                   "0",
                                   "--disk-pool-bytes",
                                   "1073741824",
                                   "--scanner",
                                   std::string(SB_BINARY_DIR) + "/bin/sandbar-scanner",
                                   "--runsc",
                                   runsc_};
  args.insert(args.end(), extra.begin(), extra.end());
  pid_t pid = ::fork();
  if (pid == 0) ::_exit(RunSpawner(args));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Result<std::unique_ptr<TestClient>> TestHost::Connect() {
  SB_TRY(Fd socket, os::ConnectUnixPath(data() + "/run/spawner.sock", SOCK_SEQPACKET));
  return std::make_unique<TestClient>(std::move(socket));
}

pid_t TestHost::spawner_pid() {
  auto text = os::ReadFile(data() + "/run/lock", 32);
  return text ? static_cast<pid_t>(std::atoi(text->c_str())) : 0;
}

bool TestHost::SpawnerAlive() {
  // Held for life by a spawner, so a lock that we get means there is none.
  auto lock = os::OpenPath(data() + "/run/lock", O_RDWR);
  return lock && ::flock(lock->get(), LOCK_EX | LOCK_NB) != 0;
}

void TestHost::AwaitEnd(pid_t pid) {
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) return;
  pollfd p{pidfd.get(), POLLIN, 0};
  SB_CHECK(::poll(&p, 1, kPatienceMs) == 1);
}

void TestHost::KillSpawner() {
  pid_t pid = spawner_pid();
  SB_CHECK(pid > 1);
  ::kill(pid, SIGKILL);
  AwaitEnd(pid);
}

void TestHost::StopSpawner() {
  pid_t pid = spawner_pid();
  SB_CHECK(pid > 1);
  ::kill(pid, SIGTERM);
  AwaitEnd(pid);
}

void TestHost::UseGvisor() {
  runsc_ = "/usr/bin/runsc";
  if (const char* other = std::getenv("SANDBAR_TEST_RUNSC")) runsc_ = other;
  UseAgent(kStreamAgent);
}

BootReq TestHost::SmallMachine(const std::string& id) {
  BootReq r;
  r.machine = id;
  r.limits = {1, 256 << 20, 128, 64 << 20};
  if (OnGvisor()) r.engine = kGvisorEngine;
  return r;
}

ConfigureReq TestHost::Image(const std::string& id) {
  ConfigureReq r;
  r.machine = id;
  r.layers = {"tiny"};
  r.image_digest = "sha256:0000";
  return r;
}

Result<Answer> TestHost::Start(TestClient& client, const std::string& id) {
  BootReq request = SmallMachine(id);
  if (gvisor()) request.engine = kGvisorEngine;
  SB_TRY(Answer boot, client.Call(std::move(request)));
  SB_TRYV(client.Call(Image(id)));
  return boot;
}

Result<std::string> TestHost::Run(const std::string& id, const std::string& script) {
  SB_TRY(Fd socket, os::ConnectUnixPath(data() + "/run/agents/" + id + ".sock", SOCK_STREAM));
  SB_TRYV(WriteAll(socket.get(), gvisor() ? std::to_string(script.size()) + "\n" + script : script));
  if (!gvisor()) ::shutdown(socket.get(), SHUT_WR);
  std::string out;
  for (;;) {
    SB_TRYV(WaitReadable(socket.get()));
    std::array<char, 4096> buf{};
    ssize_t n = ::read(socket.get(), buf.data(), buf.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return out;
    out.append(buf.data(), static_cast<size_t>(n));
    // A stream has no end to wait for.
    if (gvisor() && LastLineIsExit(out)) return out;
  }
}

std::string TestHost::Fetch(const std::string& id, int listener) {
  pid_t server = ::fork();
  if (server == 0) {
    if (!WaitReadable(listener)) ::_exit(1);
    Fd peer(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    sockaddr_in target{};
    socklen_t len = sizeof target;
    // 80 is SO_ORIGINAL_DST: where the machine wanted to go.
    bool ok = peer && ::getsockopt(peer.get(), IPPROTO_IP, 80, &target, &len) == 0 &&
              target.sin_addr.s_addr == ::inet_addr("198.51.100.7") && ntohs(target.sin_port) == 443;
    if (ok) ok = WriteAll(peer.get(), "from outside\n").has_value();
    ::_exit(ok ? 0 : 1);
  }
  auto out = Run(id, "nc 198.51.100.7 443");
  int status = 0;
  ::waitpid(server, &status, 0);
  if (!out) return out.error().message;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? *out : "the listener saw something else: " + *out;
}

pid_t TestHost::MachinePid(TestClient& client, const std::string& id) {
  auto list = client.Call(ListReq{});
  if (!list) return 0;
  for (const auto& m : std::get<ListResp>(list->body).machines) {
    if (m.machine == id) return m.pid;
  }
  return 0;
}

std::string TestHost::UpperOf(const std::string& id) {
  std::ifstream log(data() + "/log/spawner.log");
  std::string slot, mark = "machine " + id + " on ";
  for (std::string line; std::getline(log, line);) {
    if (size_t at = line.find(mark); at != std::string::npos) slot = line.substr(at + mark.size());
  }
  if (slot.empty()) return {};
  return "/proc/" + std::to_string(spawner_pid()) + "/root" + slot + "/upper";
}

Result<> TestHost::UseErofsImage() {
  std::string layer = images() + "/layers/tiny";
  SB_TRYV(os::RunProgram({"mkfs.erofs", "--quiet", "-zlz4", layer + ".erofs", layer}));
  std::error_code ec;
  fs::remove_all(layer, ec);
  return {};
}

}  // namespace sandbar::spawner
