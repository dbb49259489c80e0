// Bounds of what server and agent tell each other (protocol/guest_frames.h). Both sides check them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sandbar::protocol {

inline constexpr size_t kMaxData = 128 << 10;       // longest Output or Data payload
inline constexpr size_t kOutputWindow = 1 << 20;    // unacknowledged output per command
inline constexpr size_t kMaxInput = 4 << 20;        // for a command's channel, not yet taken by it
inline constexpr size_t kStdinWindow = 128 << 10;   // of standard input, sent and not yet passed on to the command
inline constexpr uint32_t kMaxTerminalSide = 4096;  // columns or rows
inline constexpr size_t kStreamWindow = 1 << 20;    // initial credit of a file stream, each way
inline constexpr size_t kSpoolHead = 8 << 20;       // kept per command while the daemon is away
inline constexpr size_t kSpoolTail = 8 << 20;
inline constexpr size_t kMaxCommands = 1024;    // known to the agent at once, exited but unacknowledged ones included
inline constexpr size_t kMaxStreams = 64;       // open file streams at once
inline constexpr size_t kMaxDials = 256;        // open connections to servers at once
inline constexpr size_t kMaxCommandId = 128;    // bytes; ids are never empty
inline constexpr size_t kMaxPath = 4095;        // PATH_MAX without the NUL
inline constexpr uint32_t kMaxListed = 1001;    // entries of one ListDir
inline constexpr size_t kMaxListing = 5 << 20;  // their bytes
inline constexpr uint32_t kMaxMode = 07777;
inline constexpr size_t kMaxUserName = 256;
inline constexpr size_t kMaxMachineKey = 64;
inline constexpr size_t kMaxEntropy = 256;
inline constexpr size_t kMaxErrorText = 4096;       // error texts
inline constexpr uint64_t kMaxOffset = 1ULL << 60;  // offsets and gaps above this are a lie

}  // namespace sandbar::protocol
