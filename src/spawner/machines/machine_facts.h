// What one machine is: facts that are decided when it boots and never change. A value; Machine owns one and lends it to
// the Launch that starts it.
//
//   MachineFacts facts{.id = "m1", .engine = &kMicrovm, .agent_key = NewLabel("", 32)};
#pragma once

#include <string>

#include "base/engine_table.h"

namespace sandbar::spawner {

struct MachineFacts {
  std::string id;
  const EngineTraits* engine = &kNamespaces;
  // The key with which the agent proves that it read the spawner's configuration; empty for engines without keys.
  std::string agent_key;
  bool nesting = false;  // it runs containers

  // The agent's socket, in the directory of all of them.
  std::string socket_name() const { return id + ".sock"; }
};

}  // namespace sandbar::spawner
