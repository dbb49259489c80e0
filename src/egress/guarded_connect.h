// The one dialler of the product: no other file of the daemon calls connect(2) towards a network.
// GuardedConnect checks the very address that it dials (AddressDenied), so neither a rebound DNS answer nor an odd
// spelling leads anywhere else. Single loop.
//
//   auto up = co_await GuardedConnect(target, config);   // kForbidden: the message says why the address is denied
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>

#include "async/task.h"
#include "base/fd.h"
#include "egress/address.h"
#include "egress/egress.h"

namespace sandbar::egress {

// A connected, non-blocking socket registered with the loop; http/socket_stream.h makes byte streams of it.
using Stream = asio::posix::stream_descriptor;

// Errors: kForbidden, kTimeout, kUnavailable (refused, unreachable), kCancelled. `config` outlives the call.
Task<Stream> GuardedConnect(Endpoint target, const EgressConfig* config);

// An address that the operator's own configuration names (the resolver): exempt from the check. Constructing one from
// anything that a guest or a network peer said is a security bug; grep for the type to see every grant.
struct OperatorEndpoint {
  Endpoint endpoint;
};
Task<Stream> ConnectOperator(OperatorEndpoint target, std::chrono::milliseconds timeout);
// A UDP socket on a fresh random port that takes datagrams from that endpoint only.
Result<Fd> OpenOperatorUdp(OperatorEndpoint target);

// Wraps an fd for the loop: non-blocking, registered. The fd is closed on failure too.
Result<Stream> MakeStream(const asio::any_io_executor& ex, Fd fd);
// Runs a task to its end for a TaskGroup. Asio throws at the first await of a task whose cancellation came in the same
// turn as a success; that is a cancellation like any other.
Task<> UntilCancelled(Task<> task);
// Makes the coming close send RST instead of FIN.
void ResetOnClose(Stream& stream);

}  // namespace sandbar::egress
