// The role Races. The names of all forks of a race are on record as pending deletions before the first fork exists:
// whatever ends the server, the next start removes them. Single loop; owned by the domain.
#pragma once

#include <memory>

#include "sandbox/commands/commands.h"
#include "sandbox/core.h"
#include "sandbox/races/promotion.h"
#include "sandbox/races/races.h"
#include "sandbox/records.h"
#include "sandbox/sandboxes/deleter.h"
#include "sandbox/sandboxes/forker.h"
#include "sandbox/sandboxes/updater.h"

namespace sandbar::sandbox {

class RacesImpl final : public Races {
 public:
  RacesImpl(Core* core, Records* records, ActiveSessions* active, Commands* commands, Forker* forker, Updater* updater,
            Deleter* deleter, Promotion* promotion)
      : core_(core),
        records_(records),
        active_(active),
        commands_(commands),
        forker_(forker),
        updater_(updater),
        deleter_(deleter),
        promotion_(promotion) {}

  Task<RaceOutcome> Run(Scope scope, RaceSpec spec) override;
  Task<store::Sandbox> Promote(Scope scope, std::string fork, std::optional<std::string> into) override;

 private:
  struct RaceState {
    RaceSpec spec;
    RaceOutcome outcome;
  };
  Task<RaceOutcome> RunNow(Scope scope, RaceSpec spec);
  Task<> RunRacer(Scope scope, std::shared_ptr<RaceState> race, size_t index);
  Task<> KeepWinner(Scope scope, store::Sandbox source, std::shared_ptr<RaceState> race);

  Core* core_;
  Records* records_;
  ActiveSessions* active_;
  Commands* commands_;
  Forker* forker_;
  Updater* updater_;
  Deleter* deleter_;
  Promotion* promotion_;
};

}  // namespace sandbar::sandbox
