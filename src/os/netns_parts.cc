#include "os/netns_parts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <nftables/libnftables.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace sandbar::os {

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
