// Streaming gunzip (RFC 1952, several members allowed) without I/O. One owner, one thread.
//
//   Gunzip gz;
//   SB_TRYV(gz.Feed(bytes, [&](std::string_view plain) { return tar.Feed(plain); }));
//   SB_TRYV(gz.Finish());   // fails when the last member is cut off
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"

namespace sandbar::guest {

class Gunzip {
 public:
  Gunzip();
  ~Gunzip();
  Result<> Feed(std::string_view bytes, const std::function<Result<>(std::string_view)>& sink);
  Result<> Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sandbar::guest
