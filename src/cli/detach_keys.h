// Finds the keys that leave a terminal, Ctrl-P Ctrl-Q, in what is typed. A Ctrl-P is held back until it is known what
// follows: the caller lets it go after a moment. No I/O, any thread.
//
//   std::string keys = detach.Feed(typed);       // what the command gets
//   if (detach.found()) …
//   if (detach.holding()) …                      // soon: keys = detach.Release();
#pragma once

#include <string>
#include <string_view>

namespace sandbar::cli {

class DetachKeys {
 public:
  std::string Feed(std::string_view typed);
  std::string Release();
  bool holding() const { return holding_; }
  bool found() const { return found_; }

 private:
  bool holding_ = false;
  bool found_ = false;
};

}  // namespace sandbar::cli
