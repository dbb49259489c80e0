// The role Races: one command in several forks of a sandbox at once, and making a fork's state that of its source.
// Single loop. Every call takes the caller's Scope.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "sandbox/scope.h"
#include "store/records.h"

namespace sandbar::sandbox {

struct RaceSpec {
  std::string source, command;
  std::vector<std::string> args;
  int count = 2;
  std::string score;    // empty: the first exit with 0 wins; else a pattern whose last match in stdout is a number
  bool lowest = false;  // the smallest number wins
  std::string keep = "promote";  // "promote": the winner becomes the source's head; "fork": it stays beside it; "none"
};

struct Racer {
  std::string name, session;
  std::optional<int> exit_code;
  int64_t duration_ms = 0;
  std::optional<double> score;
  std::string error;   // why it did not finish
  std::string output;  // the end of stdout
};

struct RaceOutcome {
  std::vector<Racer> racers;
  std::optional<size_t> winner;  // none when no racer exited with 0 and a score
  std::string snapshot;          // the winner's files, when it was promoted
};

class Races {
 public:
  virtual ~Races() = default;
  // No fork of the race is left afterwards, even after a crash of the server, except a winner that was to be kept.
  virtual Task<RaceOutcome> Run(Scope scope, RaceSpec spec) = 0;
  // The newest snapshot of `fork` becomes that of the sandbox that it was forked from, or of `into`. A running fork is
  // stopped first. A running target is refused, because its own stop would make another snapshot.
  virtual Task<store::Sandbox> Promote(Scope scope, std::string fork, std::optional<std::string> into) = 0;
};

}  // namespace sandbar::sandbox
