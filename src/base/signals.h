// Signal state of a process about to become another program.
#pragma once

namespace sandbar {

// Every signal at its default and none blocked, whatever the starter left ignored. Async-signal-safe.
void ResetSignals();

}  // namespace sandbar
