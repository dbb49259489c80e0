// Confines a process of ours that reads files or messages of guests. Call it once, with one thread, before the first
// byte is read.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace sandbar::os {

// Afterwards the process can only read below the directories that it has open, and write to the files that it has open.
// Makes `root` the root directory. Keeps CAP_DAC_READ_SEARCH and CAP_SYS_ADMIN, which reading overlay's attributes
// needs. The allowed system calls give CAP_SYS_ADMIN no other use.
Result<> ConfineToReading(int root);

// Afterwards the process can only read, write, pass on and wait for the descriptors that it has. It cannot open files
// or start programs. It keeps these capabilities (bit n is capability n) and these ioctl requests. It stays root,
// because root owns the files.
Result<> ConfineToDescriptors(uint64_t capabilities, const std::vector<uint32_t>& requests);

}  // namespace sandbar::os
