// YAML, JSON and JSON lines as one kind of value, so that case files and scripts are decoded by the JSON decoder with
// its errors. The only file that knows yaml-cpp. Files are the user's own, but bounded all the same.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <string>

#include "base/result.h"

namespace sandbar::llm {

// Plain scalars become null, bool, integer or number as in YAML 1.2's core schema; quoted ones stay strings. Aliases
// are expanded within a bound. kBadRequest names the line.
Result<boost::json::value> ParseYaml(const std::string& text);

// A list from a file: a YAML or JSON list, a mapping with the key `steps`, or (.jsonl) one JSON value per line.
Result<boost::json::array> ReadList(const std::string& path);

}  // namespace sandbar::llm
