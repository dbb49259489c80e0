// A regular expression of a tenant's choice whose cost is bounded: rules of network policies and scores of races use
// it. RE2 searches in steps: at most one for each instruction of its program and each byte of the text. Compile()
// refuses large programs, Cost() says how many steps a search may take, and whoever searches has a StepBudget. Values;
// any thread.
//
//   SB_TRY(BoundedPattern pattern, BoundedPattern::Compile("^/v1/[0-9]+$", false));
//   StepBudget budget(kMaxMatchSteps);
//   if (!budget.Take(pattern.Cost(text.size()))) …   // too costly: refuse, do not search
//   bool found = pattern.Finds(text);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace re2 {
class RE2;
}

namespace sandbar::egress {

// One search, or all searches for one request, take at most so many steps.
inline constexpr uint64_t kMaxMatchSteps = uint64_t{1} << 20;
// Searches of at most so many steps may run on a loop; larger ones run on a thread of their own.
inline constexpr uint64_t kMaxLoopSteps = uint64_t{1} << 14;

class StepBudget {
 public:
  explicit StepBudget(uint64_t steps) : left_(steps) {}
  // False: there are not so many left, and from then on there are none.
  bool Take(uint64_t steps) {
    const bool enough = steps <= left_;
    left_ = enough ? left_ - steps : 0;
    spent_ = spent_ || !enough;
    return enough;
  }
  bool spent() const { return spent_; }  // a Take was refused

 private:
  uint64_t left_;
  bool spent_ = false;
};

class BoundedPattern {
 public:
  static constexpr size_t kMaxBytes = 4000;    // of the pattern's text
  static constexpr size_t kMaxEffort = 4000;   // see Effort
  static constexpr size_t kMaxProgram = 2000;  // instructions

  // What compiling a pattern costs, in about microseconds, estimated from its text alone: a repetition (`{n,m}`) counts
  // as often as it may repeat, a class of Unicode (`\p{…}`) as 250 characters.
  static size_t Effort(std::string_view text);
  // kBadRequest: what is wrong with the pattern and what to do about it.
  static Result<BoundedPattern> Compile(const std::string& text, bool ignore_case);

  size_t program() const { return program_; }
  int groups() const;
  // The most steps that one search in so many bytes takes.
  uint64_t Cost(size_t bytes) const { return static_cast<uint64_t>(program_) * (bytes + 1); }
  bool Finds(std::string_view text) const;

  struct Match {
    std::string_view whole;
    std::string_view group;  // the first one; the whole match when the pattern has none
  };
  std::optional<Match> FindFirst(std::string_view text) const;

 private:
  BoundedPattern(std::shared_ptr<const re2::RE2> regex, size_t program) : regex_(std::move(regex)), program_(program) {}

  std::shared_ptr<const re2::RE2> regex_;  // shared by copies; searching does not change it
  size_t program_ = 0;
};

}  // namespace sandbar::egress
