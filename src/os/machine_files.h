// What a machine sees of its hardware: generated /proc files and a small /sys that show the machine's size instead of
// the host's, a /dev with only harmless devices, and the lists of procfs paths that are masked or read-only. Called by
// the spawner's only thread; the results are made once and shared by all machines of a size.
//
//  SB_TRY(std::string dir, EnsureSizeTemplate(run + "/sizes", 2, 4ull << 30));
//  // bind dir/proc/cpuinfo over /proc/cpuinfo
//  SB_TRY(Fd dev, MakeDevTemplate());                // open_tree(CLONE) it once per machine
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

// Returns a directory with proc/{cpuinfo,meminfo,stat,loadavg,cmdline} and sys/; made once per size, then reused.
Result<std::string> EnsureSizeTemplate(const std::string& dir, uint32_t vcpus, uint64_t memory_bytes);

// A detached read-only tmpfs mount with device nodes, the mount points pts/, shm/ and mqueue/, and the usual links.
Result<Fd> MakeDevTemplate();

// Relative to /proc, only those that exist on this kernel.
std::span<const char* const> MaskedProcFiles();    // bind /dev/null over each
std::span<const char* const> MaskedProcDirs();     // bind an empty read-only directory over each
std::span<const char* const> ReadOnlyProcPaths();  // bind onto itself, read-only

}  // namespace sandbar::os
