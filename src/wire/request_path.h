// The path of a request: the one form in which it is sent on, and the ways in which servers may read that form. Values
// only; any thread; fuzzed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbar::wire {

// Percent-escapes of unreserved bytes decoded, others in upper case, dot segments resolved. Fails on a bad escape.
Result<std::string> NormalizePath(std::string_view path);

// How servers may read a path that NormalizePath gave, without repetitions. The first one takes escaped slashes and
// parameters (";x") as part of their segment. Others decode up to three times, take an escaped slash for a slash, drop
// parameters and empty segments, and end the path at an escaped "?" or "#". Rules about paths must come to the same
// result for all of them.
// kForbidden with a reason: there are readings that nobody can foresee (dot segments that are left, or appear when the
// path is decoded again or parameters are dropped; backslashes; control characters; overlong UTF-8; a fourth escaping).
Result<std::vector<std::string>> ReadPath(std::string_view normalised);

}  // namespace sandbar::wire
