// For a process that reads what guests wrote: after this it can read below the directories it has open and write to the
// files it has open, nothing else. Call once, before the first byte is read, with one thread.
#pragma once

#include "base/result.h"

namespace sandbar::os {

// Makes `root` the root directory, keeps CAP_DAC_READ_SEARCH and CAP_SYS_ADMIN (without the latter overlay's attributes
// cannot be read) and a list of system calls with which the latter can do nothing more than that.
Result<> ConfineToReading(int root);

}  // namespace sandbar::os
