#include "cli/detach_keys.h"

#include <utility>

namespace sandbar::cli {
namespace {

constexpr char kCtrlP = 0x10;
constexpr char kCtrlQ = 0x11;

}  // namespace

std::string DetachKeys::Feed(std::string_view typed) {
  std::string out;
  for (const char c : typed) {
    if (holding_ && c == kCtrlQ) {
      holding_ = false;
      found_ = true;
      break;
    }
    if (std::exchange(holding_, false)) out.push_back(kCtrlP);
    if (c == kCtrlP) {
      holding_ = true;
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string DetachKeys::Release() {
  return std::exchange(holding_, false) ? std::string(1, kCtrlP) : std::string();
}

}  // namespace sandbar::cli
