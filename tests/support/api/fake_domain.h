// For tests: all roles of the domain as fakes over one FakeState.
//
//   FakeDomain domain(io.get_executor());
//   Api api(&domain.roles(), &catalog, config);
#pragma once

#include "support/api/fake_commands.h"
#include "support/api/fake_keys.h"
#include "support/api/fake_sandboxes.h"
#include "support/api/fake_snapshots.h"
#include "support/api/fake_state.h"

namespace sandbar::api {

class FakeDomain : public FakeState {
 public:
  using FakeState::FakeState;
  FakeDomain(const FakeDomain&) = delete;
  FakeDomain& operator=(const FakeDomain&) = delete;
  const sandbox::Roles& roles() const { return roles_; }

 private:
  FakeSandboxes sandboxes_{this};
  FakeSessions sessions_{this};
  FakeCommands commands_{this};
  FakeFiles files_{this};
  FakeSnapshots snapshots_{this};
  FakeDrives drives_{this};
  FakeCodeContexts code_{this};
  FakeRaces races_{this};
  FakePorts ports_{this};
  FakeServer server_;
  FakeKeys keys_{this};
  sandbox::Roles roles_{&sandboxes_, &sessions_, &commands_, &files_,  &snapshots_, &drives_,
                        &code_,      &races_,    &ports_,    &server_, &keys_};
};

}  // namespace sandbar::api
