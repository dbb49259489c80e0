#include "os/unix_socket.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

#include "os/openat.h"

namespace sandbar::os {
namespace {

// sun_path holds 107 characters; going through the directory's fd makes every path short.
Result<sockaddr_un> AddressIn(int dir, const std::string& name) {
  std::string path = "/proc/self/fd/" + std::to_string(dir) + "/" + name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.find('/') != std::string::npos || path.size() >= sizeof address.sun_path)
    return Fail(Code::kBadRequest, "bad socket name");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

Result<Fd> MakeUnixSocket(int type) {
  int fd = ::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return FailErrno("unix socket");
  return Fd(fd);
}

Result<> BindAndListen(int socket, int dir, const std::string& name, mode_t mode, uid_t uid, gid_t gid) {
  SB_TRY(sockaddr_un address, AddressIn(dir, name));
  if (::unlinkat(dir, name.c_str(), 0) != 0 && errno != ENOENT) return FailErrno("replace socket " + name);
  // The mode comes from the umask at bind: nobody may connect before owner and mode are final.
  mode_t old = ::umask(0177);
  int rc = ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  int err = errno;
  ::umask(old);
  if (rc != 0) return FailErrno("bind " + name, err);
  if (::fchownat(dir, name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("chown " + name);
  if (::fchmodat(dir, name.c_str(), mode, 0) != 0) return FailErrno("chmod " + name);
  if (::listen(socket, 64) != 0) return FailErrno("listen " + name);
  return {};
}

Result<Fd> ConnectUnix(int dir, const std::string& name, int type) {
  SB_TRY(sockaddr_un address, AddressIn(dir, name));
  SB_TRY(Fd socket, MakeUnixSocket(type));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return FailErrno("connect " + name);
  return socket;
}

Result<Fd> ConnectUnixPath(const std::string& path, int type) {
  std::filesystem::path p(path);
  std::string parent = p.parent_path().empty() ? "." : p.parent_path().string();
  SB_TRY(Fd dir, OpenPath(parent, O_PATH | O_DIRECTORY));
  return ConnectUnix(dir.get(), p.filename().string(), type);
}

Result<bool> SendPacket(int socket, std::string_view bytes, std::span<const int> fds) {
  SB_CHECK(fds.size() <= kMaxFdsPerPacket);
  iovec iov{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFdsPerPacket)> control{};
  msghdr msg{};
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  if (!fds.empty()) {
    msg.msg_control = control.data();
    msg.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
  }
  for (;;) {
    ssize_t n = ::sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return true;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS) return false;
    if (errno == EPIPE || errno == ECONNRESET) return Fail(Code::kClosed, "peer is gone");
    return FailErrno("send packet");
  }
}

Result<std::optional<Packet>> ReceivePacket(int socket, size_t max, bool accept_fds) {
  Packet packet;
  packet.bytes.resize(max);
  iovec iov{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFdsPerPacket)> control{};
  msghdr msg{};
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  if (accept_fds) {
    msg.msg_control = control.data();
    msg.msg_controllen = control.size();
  }
  ssize_t n = 0;
  do {
    n = ::recvmsg(socket, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return std::optional<Packet>();
  if (n < 0 && errno == ECONNRESET) return Fail(Code::kClosed, "peer is gone");
  if (n < 0) return FailErrno("receive packet");
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      packet.fds.emplace_back(fd);
    }
  }
  if (n == 0) return Fail(Code::kClosed, "peer closed");
  if ((msg.msg_flags & MSG_TRUNC) != 0) return Fail(Code::kProtocol, "packet is too large");
  if (accept_fds && (msg.msg_flags & MSG_CTRUNC) != 0) return Fail(Code::kProtocol, "fds were lost (limit reached?)");
  packet.bytes.resize(static_cast<size_t>(n));
  return std::optional<Packet>(std::move(packet));
}

Result<PeerIdentity> PeerOf(int socket) {
  ucred cred{};
  socklen_t len = sizeof cred;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0) return FailErrno("peer credentials");
  return PeerIdentity{cred.uid, cred.gid, cred.pid};
}

}  // namespace sandbar::os
