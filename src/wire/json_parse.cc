#include "wire/json_parse.h"

#include <boost/json/error.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parser.hpp>
#include <string>

namespace sandbar::wire {

namespace json = boost::json;

namespace {

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == text.npos;
}

}  // namespace

Result<json::value> ParseJson(std::string_view text, JsonLimits limits) {
  if (text.size() > limits.bytes)
    return Fail(Code::kTooLarge, "the body is larger than " + std::to_string(limits.bytes) + " bytes");
  if (IsBlank(text)) return json::object();
  json::parse_options options;
  options.max_depth = limits.depth;
  json::parser parser({}, options);
  boost::system::error_code ec;
  const size_t used = parser.write(text.data(), text.size(), ec);
  if (ec == json::error::too_deep)
    return Fail(Code::kBadRequest,
                "Invalid request: JSON is nested deeper than " + std::to_string(limits.depth) + " levels");
  if (ec)
    return Fail(Code::kBadRequest,
                "Invalid request: the body is not JSON (" + ec.message() + " at byte " + std::to_string(used) + ")");
  return parser.release();
}

}  // namespace sandbar::wire
