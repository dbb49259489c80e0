// The rules of one domain of a policy, compiled so that requests can be matched. Private to egress/; see policy.h.
// Immutable; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egress/bounded_pattern.h"
#include "egress/policy.h"

namespace sandbar::egress {

// What the rules of a whole policy add up to. Each has a limit.
struct RuleTotals {
  size_t rules = 0;
  size_t matchers = 0;
  size_t bytes = 0;    // of texts in rules: matchers, headers, bodies, URLs
  size_t shown = 0;    // of these, what every answer about the sandbox repeats: all but values of headers and bodies
  size_t effort = 0;   // of regular expressions, see BoundedPattern::Effort
  size_t program = 0;  // instructions of regular expressions
};

// A matcher ready for use. Without one everything fits.
class CompiledMatcher {
 public:
  CompiledMatcher() = default;
  // `fold`: the case of ASCII letters does not matter. `field` names the matcher in errors.
  static Result<CompiledMatcher> Compile(const std::optional<Matcher>& matcher, const std::string& field, bool fold,
                                         RuleTotals& totals);
  // False as well when the budget does not suffice; the budget says so then.
  bool Fits(std::string_view text, StepBudget& budget) const;

 private:
  std::optional<Matcher::Kind> kind_;
  std::string text_;
  std::optional<BoundedPattern> pattern_;
  bool fold_ = false;
};

class CompiledRules {
 public:
  // `entry` outlives it. kBadRequest names the rule and the limit.
  static Result<CompiledRules> Compile(const DomainEntry& entry, RuleTotals& totals);
  // The first rule that matches, null when none does. kTooLarge: the budget does not suffice to tell.
  Result<const Rule*> Find(const RequestView& request, StepBudget& budget) const;
  bool has_path_rules() const { return has_path_rules_; }

 private:
  struct Pair {
    CompiledMatcher key, value;
  };
  struct One {
    const Rule* rule = nullptr;
    CompiledMatcher path;
    std::vector<Pair> query, headers;
  };
  static Result<std::vector<Pair>> CompilePairs(const std::vector<PairMatch>& pairs, const std::string& field,
                                                bool fold_keys, RuleTotals& totals);
  static bool AllFit(const std::vector<Pair>& wanted, const std::vector<NameValue>* given, StepBudget& budget);
  static bool Fits(const One& one, const RequestView& request, StepBudget& budget);

  std::vector<One> rules_;
  bool has_path_rules_ = false;
};

}  // namespace sandbar::egress
