// The domain as the fronts (api/, mcp/) see it: one interface per noun. A handler uses the role that it needs, and a
// test fakes the roles that it needs. The domain owns all of them; they live as long as it does.
//
//   auto view = co_await roles->sandboxes->Create(scope, std::move(spec));
#pragma once

#include "sandbox/code/code_contexts.h"
#include "sandbox/commands/commands.h"
#include "sandbox/drives/drives.h"
#include "sandbox/files/files.h"
#include "sandbox/keys/keys.h"
#include "sandbox/ports/ports.h"
#include "sandbox/races/races.h"
#include "sandbox/sandboxes/sandboxes.h"
#include "sandbox/server.h"
#include "sandbox/sessions/sessions.h"
#include "sandbox/snapshots/snapshots.h"

namespace sandbar::sandbox {

struct Roles {
  Sandboxes* sandboxes = nullptr;
  Sessions* sessions = nullptr;
  Commands* commands = nullptr;
  Files* files = nullptr;
  Snapshots* snapshots = nullptr;
  Drives* drives = nullptr;
  CodeContexts* code = nullptr;
  Races* races = nullptr;
  Ports* ports = nullptr;
  Server* server = nullptr;
  Keys* keys = nullptr;
};

}  // namespace sandbar::sandbox
