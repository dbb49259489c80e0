// A machine's network namespace, owned by the host's user namespace. TCP from the machine that is not for its own
// loopback is redirected to a listener on port 1, UDP to port 53 to a socket on port 1. All other packets are dropped
// and counted. The process that holds the two descriptors serves them from outside the namespace. There are three
// kinds:
//  - local: the machine's processes live in the namespace, which has only `lo`.
//  - tap: the namespace is nobody's; frames of a virtual machine arrive through a tap device.
//  - veth: the same, with a veth pair whose other end is in a second namespace, the machine's own.
// Used by the spawner's only thread: it enters the namespace for the moment of making a socket.
//
//   SB_TRY(MachineNet net, CreateLocalNet());           // net.tcp: accept, SO_ORIGINAL_DST; net.dns: recvmsg, sendmsg
//   SB_TRY(Fd conn, DialIn(net.netns.get(), 3000));     // preview: connect to 127.0.0.1:3000 in there
//   SB_TRY(uint64_t lost, DroppedPackets(net.netns.get()));
#pragma once

#include <array>
#include <cstdint>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

struct MachineNet {
  Fd netns, tcp, dns;
  Fd tap;    // kind tap: one Ethernet frame per read and write, no header before it
  Fd inner;  // kind veth: the machine's own namespace, with `eth0` and `lo` ready
};

// The ends of a tap or veth link, the same in every machine: no two links ever meet. The addresses are of a block that
// is for documentation only, so they hide no real host from the guest. A guest on a tap configures its end like this,
// and its default route by way of the host's end; a veth's is configured. Only the guest's MAC may be another one: some
// programs take it for something that no other machine has.
using Mac = std::array<uint8_t, 6>;
inline constexpr uint32_t kLinkHostAddress = 0xC6336401;   // 198.51.100.1
inline constexpr uint32_t kLinkGuestAddress = 0xC6336402;  // 198.51.100.2
inline constexpr uint8_t kLinkPrefix = 30;
inline constexpr Mac kLinkHostMac = {0x02, 0x53, 0x42, 0x00, 0x00, 0x01};
inline constexpr Mac kLinkGuestMac = {0x02, 0x53, 0x42, 0x00, 0x00, 0x02};

// Host-owned namespace, lo up, every address local, rules, sysctls, non-blocking sockets on port 1.
Result<MachineNet> CreateLocalNet();
// Host-owned namespace with one device that takes TCP and DNS from the guest's addresses and nothing else.
Result<MachineNet> CreateTapNet(const Mac& guest = kLinkGuestMac);
// With a user namespace, the machine's end belongs to that: its root may do there what it likes.
Result<MachineNet> CreateVethNet(int owner = -1);

// Non-blocking connect to 127.0.0.1:port (or [::1]:port: some servers bind only that) in the namespace; the caller
// waits for writability and reads SO_ERROR.
Result<Fd> DialIn(int netns, uint16_t port, bool ipv6 = false);
// The same over a tap or veth, to the guest's address: what a guest binds to its own loopback is not reached this way.
Result<Fd> DialLink(int netns, uint16_t port);

// What the machine sent and the rules refused, of all kinds together.
Result<uint64_t> DroppedPackets(int netns);

}  // namespace sandbar::os
