#include "attack_machine.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/ids.h"

namespace sandbar {
namespace fs = std::filesystem;

Result<std::unique_ptr<HostCanaries>> HostCanaries::Plant() {
  std::unique_ptr<HostCanaries> out(new HostCanaries);
  out->canary_ = NewLabel("canary", 20);
  char dir[] = "/var/tmp/sandbar-canary-XXXXXX";
  if (::mkdtemp(dir) == nullptr) return FailErrno("mkdtemp");
  out->dir_ = dir;
  std::ofstream(out->dir_ + "/secret") << out->canary_ << "\n";
  SB_TRYV(out->StartProcess());
  SB_TRYV(out->StartServices());
  return out;
}

Result<> HostCanaries::StartProcess() {
  process_ = ::fork();
  if (process_ < 0) return FailErrno("fork");
  if (process_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string script = "while :; do sleep 1; done # " + canary_;
    const std::string variable = "SECRET=" + canary_;
    const char* argv[] = {"sh", "-c", script.c_str(), nullptr};
    const char* env[] = {"PATH=/bin:/usr/bin", variable.c_str(), nullptr};
    ::execve("/bin/sh", const_cast<char**>(argv), const_cast<char**>(env));
    ::_exit(127);
  }
  return {};
}

Result<> HostCanaries::StartServices() {
  abstract_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, canary_.data(), canary_.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + canary_.size());
  if (::bind(abstract_.get(), reinterpret_cast<sockaddr*>(&name), size) != 0) return FailErrno("bind");
  if (::listen(abstract_.get(), 8) != 0) return FailErrno("listen");
  tcp_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in addr{};
  addr.sin_family = AF_INET;
  addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof addr;
  if (::bind(tcp_.get(), reinterpret_cast<sockaddr*>(&addr), length) != 0) return FailErrno("bind");
  if (::listen(tcp_.get(), 8) != 0) return FailErrno("listen");
  if (::getsockname(tcp_.get(), reinterpret_cast<sockaddr*>(&addr), &length) != 0) return FailErrno("getsockname");
  port_ = ntohs(addr.sin_port);
  service_ = ::fork();
  if (service_ < 0) return FailErrno("fork");
  if (service_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
      Fd peer(::accept(tcp_.get(), nullptr, nullptr));
      (void)!::write(peer.get(), canary_.data(), canary_.size());
    }
  }
  return {};
}

HostCanaries::~HostCanaries() {
  for (pid_t pid : {process_, service_}) {
    if (pid <= 0) continue;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  std::error_code ignored;
  if (!dir_.empty()) fs::remove_all(dir_, ignored);
}

std::string HostCanaries::Environment() const {
  return fmt::format(
      "ATTACK_CANARY={} ATTACK_HOST_PATHS={}/secret:/etc/shadow:/etc/machine-id ATTACK_HOST_PIDS={},{} "
      "ATTACK_ABSTRACT={} ATTACK_HOST_SERVICES=127.0.0.1:{}",
      canary_, dir_, process_, ::getpid(), canary_, port_);
}

Result<std::unique_ptr<AttackMachine>> AttackMachine::Start() {
  std::unique_ptr<AttackMachine> out(new AttackMachine);
  SB_TRY(out->canaries_, HostCanaries::Plant());
  SB_TRY(out->host_, spawner::TestHost::Create());
  const std::string layer = out->host_->images() + "/layers/tiny";
  std::error_code error;
  fs::copy_file(SB_ATTACKS, layer + "/bin/attacks", error);
  if (error) return FailErrno("copy the attack program", error.value());
  fs::create_directories(layer + "/tmp", error);
  fs::permissions(layer + "/tmp", static_cast<fs::perms>(01777), error);
  if (out->host_->StartSpawner() != 0) return Fail(Code::kUnavailable, "the spawner did not start");
  SB_TRY(out->client_, out->host_->Connect());
  SB_TRY(auto started, out->host_->Start(*out->client_, "m1"));
  out->network_ = std::move(started.fds);
  return out;
}

AttackMachine::~AttackMachine() {
  if (client_) (void)client_->Call(spawner::DestroyReq{"m1"});
}

std::string AttackMachine::Shell(const std::string& script) {
  auto out = host_->Run("m1", script);
  return out ? *out : "error: " + out.error().message;
}

AttackReport AttackMachine::Run(const std::string& which, User user) {
  AttackReport report;
  report.text =
      Shell(fmt::format("export {}; attacks {} {}", canaries_->Environment(), user == kUser ? "--as 1000" : "", which));
  std::istringstream lines(report.text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("PASS ")) report.passed.push_back(line.substr(5));
    if (line.starts_with("FAIL ")) report.failed.push_back(line.substr(5));
    if (line.starts_with("SKIP ")) report.skipped.push_back(line.substr(5));
  }
  return report;
}

}  // namespace sandbar
