// Which host names mean this machine's loopback. Pure functions, any thread.
#pragma once

#include <string_view>

namespace sandbar::wire {

// True for "localhost" (in any case, with or without the root's dot) and for addresses of 127.0.0.0/8 and ::1. `host`
// has neither brackets nor a port. A name that only looks like one, as 127.example.com does, is none.
bool IsLoopbackHost(std::string_view host);

}  // namespace sandbar::wire
