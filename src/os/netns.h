// A machine's network: a namespace owned by the host's user namespace with only `lo` in it. Everything TCP that is not
// for 127/8 is redirected to a listener on port 1, UDP port 53 to a socket on port 1; whoever holds the two fds serves
// them from outside. Used by the spawner's only thread: it enters the namespace for the moment of making a socket.
//
//   SB_TRY(MachineNet net, CreateLocalNet());           // net.tcp: accept, SO_ORIGINAL_DST; net.dns: recvmsg, sendmsg
//   SB_TRY(Fd conn, DialIn(net.netns.get(), 3000));     // preview: connect to 127.0.0.1:3000 in there
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

struct MachineNet {
  Fd netns, tcp, dns;
};

// Host-owned namespace, lo up, every address local, rules, sysctls, non-blocking sockets on port 1.
Result<MachineNet> CreateLocalNet();

// Non-blocking connect to 127.0.0.1:port (or [::1]:port: some servers bind only that) in the namespace; the caller
// waits for writability and reads SO_ERROR.
Result<Fd> DialIn(int netns, uint16_t port, bool ipv6 = false);

}  // namespace sandbar::os
