// For a process of ours that reads what guests wrote, or hears what they say. Call once, before the first byte is read,
// with one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace sandbar::os {

// After this it can read below the directories it has open and write to the files it has open, nothing else.
// Makes `root` the root directory, keeps CAP_DAC_READ_SEARCH and CAP_SYS_ADMIN (without the latter overlay's attributes
// cannot be read) and a list of system calls with which the latter can do nothing more than that.
Result<> ConfineToReading(int root);

// After this it can read, write, pass on and wait for what it has open, nothing else: it opens and starts nothing. It
// keeps these capabilities (bit n is capability n) and these requests of ioctl. It stays root: the files are root's.
Result<> ConfineToDescriptors(uint64_t capabilities, const std::vector<uint32_t>& requests);

}  // namespace sandbar::os
