// How long the steps of one piece of work took, for a line at debug level. One owner, one thread.
//
//   StepTimes steps;
//   … ; steps.Done("record");
//   … ; steps.Done("boot");
//   log::Debug("create of {}: {}", name, steps.Text());     // "2.71 ms: record 0.40, boot 2.31"
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

namespace sandbar {

class StepTimes {
 public:
  // The step that has just ended began where the one before it ended.
  void Done(std::string_view step) {
    const Clock::time_point now = Clock::now();
    text_ += fmt::format("{}{} {:.2f}", text_.empty() ? "" : ", ", step, Ms(now - last_));
    last_ = now;
  }
  std::string Text() const { return fmt::format("{:.2f} ms: {}", Ms(last_ - begin_), text_); }

 private:
  using Clock = std::chrono::steady_clock;
  static double Ms(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
  std::string text_;
};

}  // namespace sandbar
