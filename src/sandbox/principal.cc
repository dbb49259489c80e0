#include "sandbox/principal.h"

#include <fmt/format.h>

namespace sandbar::sandbox {
namespace {

std::string_view LimitOf(KeyRole role) {
  switch (role) {
    case KeyRole::kViewer:
      return "may only read";
    case KeyRole::kOperator:
      return "may only read, run and change sandboxes";
    case KeyRole::kAdmin:
      return "may do everything";
  }
  return "may do nothing";
}

}  // namespace

Result<> CheckRole(const Principal& caller, KeyRole needed) {
  if (May(caller, needed)) return {};
  // A token can have less than its key.
  const std::string_view what = caller.derived ? "this token of the key" : "the key";
  return Fail(Code::kForbidden, fmt::format("{} {} {}; this call needs {}", what, caller.name, LimitOf(caller.role),
                                            store::KeyRoleName(needed)));
}

}  // namespace sandbar::sandbox
