// Request bodies: any text is refused with a bounded message or becomes a struct, and any value that parses survives
// being written as ASCII.
#include <algorithm>
#include <boost/json/parse.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "wire/json_decode.h"
#include "wire/ndjson.h"
#include "wire/text.h"

using namespace sandbar;
using namespace sandbar::wire;

namespace {

enum class Mode { kAllowAll, kDenyAll };
BOOST_DESCRIBE_ENUM(Mode, kAllowAll, kDenyAll)

struct Resources {
  std::optional<int> vcpus;
  std::optional<uint64_t> memory;
  static constexpr JsonAlias kJsonAliases[] = {{"vcpu", "vcpus"}};
  void Check(JsonIssues& issues) const { issues.Range("vcpus", vcpus, 1, 32); }
};
BOOST_DESCRIBE_STRUCT(Resources, (), (vcpus, memory))

struct Body {
  std::string name;
  std::optional<Resources> resources;
  std::vector<uint16_t> ports;
  std::map<std::string, std::string> env;
  std::vector<std::vector<Resources>> nested;
  bool sudo = false;
  std::optional<Mode> mode;
  std::optional<std::optional<int8_t>> clear;
  std::optional<double> ratio;
  std::optional<boost::json::value> any;
};
BOOST_DESCRIBE_STRUCT(Body, (), (name, resources, ports, env, nested, sudo, mode, clear, ratio, any))

bool HasDouble(const boost::json::value& v) {
  if (const auto* o = v.if_object()) return std::ranges::any_of(*o, [](const auto& e) { return HasDouble(e.value()); });
  if (const auto* a = v.if_array()) return std::ranges::any_of(*a, HasDouble);
  return v.is_double();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  auto value = ParseJson(in, JsonLimits{.bytes = 64 << 10});
  if (!value) return 0;
  auto body = DecodeValue<Body>(*value);
  if (!body && (body.error().message.size() > 4096 || !body.error().message.starts_with("Invalid request: ")))
    std::abort();
  if (body && (body->name.contains('\0') || !IsUtf8(body->name))) std::abort();
  const std::string ascii = ToAsciiJson(*value);
  for (char c : ascii)
    if (c < 0x20) std::abort();
  boost::system::error_code ec;
  const auto again = boost::json::parse(ascii, ec);
  // Boost.JSON 1.81 may read a double off by its last bit, so a value with one need not come back exactly.
  if (ec || (!HasDouble(*value) && again != *value)) std::abort();
  return 0;
}
