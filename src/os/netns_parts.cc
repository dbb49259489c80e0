#include "os/netns_parts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <nftables/libnftables.h>
#include <sched.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace sandbar::os {
namespace {

// libnftables waits for its socket with select(), which aborts the process for descriptors from FD_SETSIZE on. Where so
// many are open, standard input makes room below for as long as this lives. Single-threaded callers only.
class RoomBelow {
 public:
  static Result<RoomBelow> Make() {
    RoomBelow room;
    const Fd probe(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!probe) return FailErrno("duplicate a descriptor");
    if (probe.get() < FD_SETSIZE) return room;
    room.stdin_ = Fd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, FD_SETSIZE));
    if (!room.stdin_) return FailErrno("move standard input");
    ::close(STDIN_FILENO);
    return room;
  }
  RoomBelow(RoomBelow&&) = default;
  RoomBelow& operator=(RoomBelow&&) = delete;
  ~RoomBelow() {
    if (stdin_) SB_CHECK(::dup2(stdin_.get(), STDIN_FILENO) == STDIN_FILENO);
  }

 private:
  RoomBelow() = default;
  Fd stdin_;
};

}  // namespace

NetnsVisit::~NetnsVisit() {
  SB_CHECK(::setns(home_.get(), CLONE_NEWNET) == 0);
}

Result<Fd> OpenOwnNetns() {
  Fd fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!fd) return FailErrno("open the network namespace");
  return fd;
}

Result<> WriteSettings(std::span<const Setting> settings) {
  for (const Setting& s : settings) {
    Fd fd(::open(s.path, O_WRONLY | O_CLOEXEC));
    const auto n = static_cast<ssize_t>(std::strlen(s.value));
    if (fd && ::write(fd.get(), s.value, static_cast<size_t>(n)) == n) continue;
    if (s.required) return FailErrno(std::string("write ") + s.path);
  }
  return {};
}

Result<std::string> RunNft(const char* script) {
  SB_TRY(const RoomBelow room, RoomBelow::Make());
  std::unique_ptr<nft_ctx, void (*)(nft_ctx*)> context(nft_ctx_new(NFT_CTX_DEFAULT), nft_ctx_free);
  if (!context) return Fail(Code::kInternal, "nftables context");
  nft_ctx_buffer_error(context.get());
  nft_ctx_buffer_output(context.get());
  if (nft_run_cmd_from_buffer(context.get(), script) != 0) {
    return Fail(Code::kUnsupported, std::string("nftables: ") + nft_ctx_get_error_buffer(context.get()));
  }
  return std::string(nft_ctx_get_output_buffer(context.get()));
}

Result<Fd> BindPortOne(int type, uint32_t address) {
  Fd fd(::socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return FailErrno("socket");
  sockaddr_in addr{};
  addr.sin_family = AF_INET;
  addr.sin_port = htons(kListenPort);
  addr.sin_addr.s_addr = htonl(address);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&addr), sizeof addr) != 0) return FailErrno("bind port 1");
  if (type == SOCK_STREAM && ::listen(fd.get(), 1024) != 0) return FailErrno("listen");
  return fd;
}

Result<Fd> TcpSocketIn(int netns, int family) {
  SB_TRY(Fd home, OpenOwnNetns());
  if (::setns(netns, CLONE_NEWNET) != 0) return FailErrno("enter the machine's network");
  NetnsVisit visit(std::move(home));
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return FailErrno("socket");
  return fd;
}

}  // namespace sandbar::os
