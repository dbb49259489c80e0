#include "api/openapi.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/result.h"
#include "wire/text.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

const json::value* Find(const json::object& from, std::string_view key) {
  return from.if_contains(key);
}

json::object Content(const json::value& by_media) {
  json::object out;
  for (const auto& [media, schema] : by_media.as_object()) out[media] = json::object{{"schema", schema}};
  return out;
}

json::object Parameter(std::string_view name, std::string_view in, json::value schema) {
  json::object out{{"name", name}, {"in", in}, {"schema", std::move(schema)}};
  if (in == "path") out["required"] = true;
  return out;
}

json::array Parameters(std::string_view pattern, const json::object& short_form) {
  json::array out;
  for (size_t at = pattern.find('{'); at != std::string_view::npos; at = pattern.find('{', at + 1)) {
    std::string_view name = pattern.substr(at + 1, pattern.find('}', at) - at - 1);
    out.emplace_back(Parameter(name, "path", json::object{{"type", name == "port" ? "integer" : "string"}}));
  }
  if (const json::value* query = Find(short_form, "query")) {
    for (const auto& [name, schema] : query->as_object()) out.emplace_back(Parameter(name, "query", schema));
  }
  return out;
}

// "status": the code of success, several with spaces between them, or "default": there is none.
json::object Responses(const json::object& short_form) {
  const json::value* status = Find(short_form, "status");
  std::string_view codes = status == nullptr ? "200" : std::string_view(status->as_string());
  json::object out;
  while (!codes.empty() && codes != "default") {
    json::object good{{"description", "done"}};
    if (const json::value* answer = Find(short_form, "answer")) good["content"] = Content(*answer);
    out[codes.substr(0, codes.find(' '))] = std::move(good);
    codes.remove_prefix(std::min(codes.size(), codes.find(' ')));
    if (!codes.empty()) codes.remove_prefix(1);
  }
  out["default"] = json::object{{"$ref", "#/components/responses/Error"}};
  if (const json::value* error = Find(short_form, "error")) {
    json::object by_media{{"application/json", *error}};
    out["default"] = json::object{{"description", "It failed"}, {"content", Content(by_media)}};
  }
  return out;
}

// The operation of one spelled-out path.
json::object Operation(const RouteInfo& info, const json::object& short_form) {
  json::object out;
  for (std::string_view key : {"operationId", "summary"}) {
    if (const json::value* value = Find(short_form, key)) out[key] = *value;
  }
  json::array parameters = Parameters(info.pattern, short_form);
  if (!parameters.empty()) out["parameters"] = std::move(parameters);
  if (const json::value* body = Find(short_form, "body"))
    out["requestBody"] =
        json::object{{"required", Find(short_form, "bodyOptional") == nullptr}, {"content", Content(*body)}};
  out["responses"] = Responses(short_form);
  if (!info.role) out["security"] = json::array{};
  if (info.role) out["x-role"] = store::KeyRoleName(*info.role);
  return out;
}

}  // namespace

std::string OpenApiText(std::span<const Route> table, std::string_view source, std::string_view version) {
  boost::system::error_code ec;
  json::value parsed = json::parse(source, ec);
  SB_CHECK(!ec && parsed.is_object());
  json::object document = std::move(parsed.as_object());
  json::object operations = std::move(document["operations"].as_object());
  document.erase("operations");
  document["info"].as_object()["version"] = version;
  document["security"] = json::array{json::object{{"token", json::array{}}}};
  json::object paths;
  for (const Route& route : table) {
    const json::value* found = Find(operations, std::string(route.method) + " " + std::string(route.pattern));
    json::object nothing;
    const json::object& short_form = found != nullptr ? found->as_object() : nothing;
    bool first = true;
    for (const RouteInfo& info : ExpandRoutes({&route, 1})) {
      json::object operation = Operation(info, short_form);
      // Ids are unique in a document: the other versions of a path add theirs.
      if (!first && operation.contains("operationId"))
        operation["operationId"] = std::string(operation["operationId"].as_string()) + "_" +
                                   info.pattern.substr(1, info.pattern.find('/', 1) - 1);
      first = false;
      if (!paths.contains(info.pattern)) paths[info.pattern] = json::object{};
      paths[info.pattern].as_object()[wire::LowerCase(info.method)] = std::move(operation);
    }
  }
  document["paths"] = std::move(paths);
  return json::serialize(document);
}

}  // namespace sandbar::api
