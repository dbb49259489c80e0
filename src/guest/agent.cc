#include "guest/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <type_traits>

#include "base/log.h"
#include "guest/terminal.h"
#include "guest/vm_init.h"
#include "guest/vm_net.h"
#include "protocol/vm_config.h"

namespace sandbar::guest {
namespace {

constexpr size_t kFull = 256 << 10;
constexpr rlim_t kFiles = 16384;
constexpr int kReapBatch = 256;
constexpr int kPortPause = 50;  // ms between two looks at a port that nobody has opened on the host

// The real thing or nothing: somebody may have put a file where /dev/null should be.
Fd OpenNull() {
  Fd fd(::open("/dev/null", O_RDWR | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st{};
  if (fd && ::fstat(fd.get(), &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)) return fd;
  int fds[2];
  SB_CHECK(::pipe2(fds, O_CLOEXEC) == 0);
  ::close(fds[1]);
  return Fd(fds[0]);
}

ChildSetup MakeSetup(std::vector<Fd> join_fds, std::string elevated) {
  ChildSetup setup;
  setup.elevated = std::move(elevated);
  setup.null = OpenNull();
  setup.pts = OpenPtsDir();
  setup.join_fds = std::move(join_fds);
  SB_CHECK(::getrlimit(RLIMIT_NOFILE, &setup.files) == 0);
  rlimit more = setup.files;
  more.rlim_cur = std::min(std::max(more.rlim_cur, kFiles), more.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &more);
  return setup;
}

Fd WatchChildren() {
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGCHLD);
  SB_CHECK(::sigprocmask(SIG_BLOCK, &mask, nullptr) == 0);
  ::signal(SIGPIPE, SIG_IGN);
  return Fd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
}

}  // namespace

Agent::Agent(AgentOptions options)
    : options_(std::move(options)),
      setup_(MakeSetup(std::move(options_.join_fds), std::move(options_.elevated))),
      commands_(&loop_, &setup_, this),
      files_(&loop_, &setup_, this, options_.worker_stall),
      dials_(&loop_, this),
      quiescer_(&loop_, &commands_, this, options_.own_kernel),
      elevations_(&loop_, &setup_),
      statfs_(&loop_, &setup_, std::move(options_.statfs)),
      children_(WatchChildren()) {
  SB_CHECK(children_);
  setup_.written = std::move(options_.written);
  setup_.own_kernel = options_.own_kernel;
  int channel = options_.stream ? options_.stream.get() : options_.listener.get();
  SB_CHECK(::fcntl(channel, F_SETFL, O_NONBLOCK) == 0);
  // Nobody in the machine may look into the agent, even where the file's mode would allow it.
  ::prctl(PR_SET_DUMPABLE, 0);
  ::umask(022);
  if (!options_.elevate_at.empty()) {
    if (auto r = elevations_.Listen(options_.elevate_at); !r) log::Warn("{}", r.error().message);
  }
  children_watch_ = loop_.Add(children_.get(), EPOLLIN, [this](uint32_t) { Reap(); });
  if (options_.stream)
    OpenStream();
  else
    listen_watch_ = loop_.Add(options_.listener.get(), EPOLLIN, [this](uint32_t) { OnAccept(); });
}

void Agent::Run() {
  Reap();  // children that ended before the signal was watched
  loop_.Run([this] {
    if (connection_ && connection_->closed()) DropConnection();
    return false;
  });
  ::_exit(0);
}

bool Agent::full() const {
  return connection_ && connection_->queued() >= kFull;
}

void Agent::Send(const protocol::GuestFrame& frame) {
  if (connection_) connection_->Send(frame);
}

void Agent::Violation(const char* what) {
  log::Warn("daemon connection: {}", what);
  if (connection_) connection_->Refuse();
}

void Agent::OnAccept() {
  Fd fd(::accept4(options_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    // Out of descriptors: look again later instead of spinning on a listener that stays ready.
    listen_watch_.Set(0);
    accept_again_ = loop_.After(std::chrono::milliseconds(100), [this] { listen_watch_.Set(EPOLLIN); });
    return;
  }
  // Newest wins: the old peer is a daemon that died or hangs.
  if (connection_) DropConnection();
  Serve(std::move(fd), Connection::Kind::kSocket);
}

void Agent::Serve(Fd fd, Connection::Kind kind) {
  connection_ = std::make_unique<Connection>(
      loop_, std::move(fd), kind, [this](protocol::HostFrame& frame) { OnFrame(frame); }, [this] { OnDrained(); });
}

void Agent::OpenStream() {
  Fd fd(::fcntl(options_.stream.get(), F_DUPFD_CLOEXEC, 3));
  SB_CHECK(fd);
  Serve(std::move(fd), Connection::Kind::kStream);
}

void Agent::EndSession() {
  if (!std::exchange(hello_, false)) return;
  files_.AbortAll();
  dials_.AbortAll();
  commands_.OnDisconnected();
}

void Agent::DropConnection() {
  bool hung_up = connection_->hung_up();
  connection_->Close();
  connection_.reset();
  EndSession();
  if (!options_.stream) return;
  struct stat st{};
  // A socket has one other end for ever; a port may be opened again by the host.
  if (hung_up && (::fstat(options_.stream.get(), &st) != 0 || S_ISSOCK(st.st_mode))) ::_exit(1);
  accept_again_ = loop_.After(std::chrono::milliseconds(hung_up ? kPortPause : 0), [this] { OpenStream(); });
}

void Agent::OnDrained() {
  commands_.Pump();
  files_.Pump();
  dials_.Pump();
}

void Agent::OnFrame(protocol::HostFrame& frame) {
  if (const auto* hello = std::get_if<protocol::Hello>(&frame)) return OnHello(*hello);
  if (std::holds_alternative<protocol::Gone>(frame) && options_.stream) {
    EndSession();
    return connection_->DropQueue();
  }
  if (!hello_) return Violation("no hello");
  Dispatch(frame);
}

void Agent::OnHello(const protocol::Hello& hello) {
  if (options_.stream) {
    EndSession();
    connection_->DropQueue();
  }
  if (hello_) return Violation("second hello");
  ++generation_;
  const protocol::VersionRange ours = protocol::GuestVersions();
  version_ = protocol::HighestCommon(ours, hello.versions());
  protocol::HelloAck ack{ours.oldest, hello.nonce, commands_.States(), options_.machine_key, ours.newest, {}};
  // A daemon of version 1 takes no further fields.
  if (Has(protocol::kStandardInput)) ack.stdins = commands_.StdinStates();
  connection_->Send(ack);
  if (version_ == 0) {
    const std::string why = "it speaks " + Describe(hello.versions()) + ", this agent " + Describe(ours);
    return Violation(why.c_str());
  }
  hello_ = true;
  files_.OnConnected();
  commands_.OnConnected();
  commands_.Pump();
}

void Agent::Dispatch(protocol::HostFrame& frame) {
  std::visit(
      [this](auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, protocol::Exec>) commands_.Exec(std::move(m));
        if constexpr (std::is_same_v<M, protocol::Ack>) commands_.Ack(m);
        if constexpr (std::is_same_v<M, protocol::ExitAck>) commands_.ExitAck(m);
        if constexpr (std::is_same_v<M, protocol::Kill>) commands_.Kill(m);
        if constexpr (std::is_same_v<M, protocol::Input>) commands_.Input(m);
        if constexpr (std::is_same_v<M, protocol::Stdin>) commands_.Stdin(m);
        if constexpr (std::is_same_v<M, protocol::StdinEnd>) commands_.StdinEnd(m);
        if constexpr (std::is_same_v<M, protocol::Resize>) commands_.Resize(m);
        if constexpr (std::is_same_v<M, protocol::Dial>) {
          if (files_.TakeId(m.stream)) dials_.Open(m);
        }
        if constexpr (requires { dials_.Take(m); }) {
          if (dials_.Take(m)) return;
        }
        if constexpr (std::is_same_v<M, protocol::Credit>) files_.OnCredit(m);
        if constexpr (std::is_constructible_v<FileRequest, M>) files_.Open(std::move(m));
        if constexpr (std::is_same_v<M, protocol::Data>) files_.OnData(m);
        if constexpr (std::is_same_v<M, protocol::End>) files_.OnEnd(m);
        if constexpr (std::is_same_v<M, protocol::Abort>) files_.OnAbort(m);
        if constexpr (std::is_same_v<M, protocol::Rekey>) Rekey(m);
        if constexpr (std::is_same_v<M, protocol::Quiesce>) {
          if (m.go_on) return quiescer_.WriteOut();
          commands_.RefuseNew();
          files_.RefuseNew();
          statfs_.EndWhenIdle();
          quiescer_.Start(std::chrono::milliseconds(std::min<uint64_t>(m.grace_ms, 3600 * 1000)));
        }
      },
      frame);
}

void Agent::Rekey(const protocol::Rekey& rekey) {
  // Only a machine with a kernel of its own was ever somebody else's.
  if (!options_.own_kernel) return Violation("nothing to rekey");
  // Two machines that draw the same random numbers must not both go on.
  if (auto r = RefreshKernel(rekey.entropy, static_cast<int64_t>(rekey.clock_ns)); !r)
    return Violation(r.error().message.c_str());
  options_.machine_key = rekey.machine_key;
  if (auto r = ChangeMac(protocol::VmMac(rekey.machine_key)); !r) return Violation(r.error().message.c_str());
  commands_.Rename(rekey.commands);
  connection_->Send(protocol::Rekeyed{});
  EndSession();
}

void Agent::Reap() {
  std::array<signalfd_siginfo, 8> info{};
  while (::read(children_.get(), info.data(), sizeof info) > 0) {
  }
  statfs_.KillStoppedServer();
  uint32_t ended = 0;
  int i = 0;
  for (; i < kReapBatch; ++i) {
    int status = 0;
    pid_t pid = ::waitpid(-1, &status, WNOHANG | __WALL);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    if (quiescer_.OnReapedPid(pid)) continue;
    ++ended;
    if (elevations_.OnReaped(pid) || statfs_.OnReaped(pid, status)) continue;
    if (!commands_.OnReaped(pid, status)) files_.OnReaped(pid);
  }
  // One signal may stand for many children; after a full batch others get their turn first.
  if (i == kReapBatch) reap_again_ = loop_.After(std::chrono::milliseconds(0), [this] { Reap(); });
  quiescer_.OnReaped(ended);
}

}  // namespace sandbar::guest
