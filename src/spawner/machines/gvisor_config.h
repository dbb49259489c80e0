// The OCI configuration of a gVisor machine, as text.
#pragma once

#include <string>

#include "spawner/machines/gvisor.h"

namespace sandbar::spawner {

// In double quotes, for JSON.
std::string JsonQuote(const std::string& text);
std::string GvisorConfig(const GvisorJail& jail);

}  // namespace sandbar::spawner
