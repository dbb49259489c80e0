// The agent's event loop (base/event_loop.h) under the names that the agent uses.
#pragma once

#include "base/event_loop.h"

namespace sandbar::guest {

using Clock = EventLoop::Clock;
using Loop = EventLoop;
using Watch = FdWatch;
using Timer = LoopTimer;

}  // namespace sandbar::guest
