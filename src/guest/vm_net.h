// The network of a virtual machine, seen from inside: one device with the fixed addresses of os/netns.h and a MAC of
// its own.
#pragma once

#include "base/result.h"
#include "os/netns.h"

namespace sandbar::guest {

Result<> ConfigureNetwork(const os::Mac& mac);
// Of a network that is up already.
Result<> ChangeMac(const os::Mac& mac);

}  // namespace sandbar::guest
