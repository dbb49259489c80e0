// Scripts of the project that the program runs for its user: beside it in a checkout, in share/sandbar when installed.
//
//   SB_TRYV(RunScript("tools/kernel.sh", {"cloud"}));      // what it says goes to stderr
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace sandbar::cli {

// kNotFound when it is not there; kIo when it fails: it has said why then.
Result<> RunScript(const std::string& name, const std::vector<std::string>& arguments);

}  // namespace sandbar::cli
