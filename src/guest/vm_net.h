// The network of a virtual machine, seen from inside: one device with the fixed addresses of os/netns.h.
#pragma once

#include "base/result.h"

namespace sandbar::guest {

Result<> ConfigureNetwork();

}  // namespace sandbar::guest
