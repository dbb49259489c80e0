// Unix sockets: binding below a directory fd (any path length, no symlink games), packets with fds, peer credentials.
// Non-blocking throughout; any thread.
//
//   SB_TRY(Fd s, MakeUnixSocket(SOCK_SEQPACKET));
//   SB_TRYV(BindAndListen(s.get(), run.get(), "spawner.sock", 0600, uid, gid));
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

inline constexpr size_t kMaxFdsPerPacket = 32;

struct Packet {
  std::string bytes;
  std::vector<Fd> fds;
};

Result<Fd> MakeUnixSocket(int type);
Result<> BindAndListen(int socket, int dir, const std::string& name, mode_t mode, uid_t uid, gid_t gid);
// Connects to dir/name; the connection is blocking only for the instant of the call.
Result<Fd> ConnectUnix(int dir, const std::string& name, int type);
Result<Fd> ConnectUnixPath(const std::string& path, int type);

// False: the peer does not read fast enough (nothing was sent).
Result<bool> SendPacket(int socket, std::string_view bytes, std::span<const int> fds);
// Empty: nothing there yet. kClosed at the end. With accept_fds false any fd that comes along is refused by the kernel.
Result<std::optional<Packet>> ReceivePacket(int socket, size_t max, bool accept_fds);

struct PeerIdentity {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
};
Result<PeerIdentity> PeerOf(int socket);

}  // namespace sandbar::os
