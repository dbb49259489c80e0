// The spawner speaks protocol/spawner_messages.h and protocol/vm_config.h; here are their names without the prefix.
#pragma once

#include "protocol/spawner_messages.h"

namespace sandbar::spawner {

using namespace protocol;

using Limits = MachineLimits;
using Request = SpawnerRequest;
using Response = SpawnerResponse;
inline constexpr size_t kMaxMessage = kMaxSpawnerMessage;

}  // namespace sandbar::spawner
