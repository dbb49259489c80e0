// Two byte streams joined: what comes from one goes to the other, both ways, until both have ended. For upgraded
// connections (WebSocket previews, `sandbar forward`). Single loop; no buffering beyond one piece per direction.
#pragma once

#include <chrono>
#include <string>

#include "async/task.h"
#include "http/byte_stream.h"

namespace sandbar::http {

// `first` was read from b before and goes to a ahead of the rest. The end of one direction is passed on where the
// stream can say it and ends both where it cannot. kTimeout when nothing moves for `idle`. Both outlive the call and
// are the caller's to close.
Task<> PipeStreams(ByteStream* a, ByteStream* b, std::string first, std::chrono::seconds idle);

}  // namespace sandbar::http
