// The signal state of a process that is about to become another program. Between fork and exec.
#pragma once

namespace sandbar {

// Every signal at its default and none blocked, whatever the starter left ignored. Async-signal-safe.
void ResetSignals();

}  // namespace sandbar
