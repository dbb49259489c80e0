// Text -> JSON values, with bounds on size and depth: for bytes from guests and networks. wire/json_decode.h makes
// structs of the values. A function without state, for any thread.
//
//   SB_TRY(boost::json::value v, wire::ParseJson(text, {.bytes = 64 << 10, .depth = 8}));
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <string_view>

#include "base/result.h"

namespace sandbar::wire {

struct JsonLimits {
  size_t bytes = 1 << 20;
  size_t depth = 32;
};

// kBadRequest when it is not JSON or nested too deep, kTooLarge when too long. Empty or blank text is {}.
Result<boost::json::value> ParseJson(std::string_view text, JsonLimits limits = {});

}  // namespace sandbar::wire
