#include "llm/yaml.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>

#include "base/files.h"
#include "wire/json_parse.h"

namespace sandbar::llm {
namespace {

namespace json = boost::json;

constexpr size_t kMaxNodes = 200'000;  // an alias bomb ends here
constexpr int kMaxDepth = 32;

template <class T>
bool Reads(const std::string& text, T* out) {
  const char* end = text.data() + text.size();
  auto [at, ec] = std::from_chars(text.data(), end, *out);
  return ec == std::errc() && at == end;
}

json::value Scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  // yaml-cpp marks what was quoted with "!".
  if (node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str") return json::value(text);
  if (text.empty() || text == "~" || text == "null") return nullptr;
  if (text == "true" || text == "false") return text == "true";
  int64_t whole = 0;
  double number = 0;
  if (Reads(text, &whole)) return whole;
  if (text.find_first_of("0123456789") != std::string::npos && Reads(text, &number) && std::isfinite(number))
    return number;
  return json::value(text);
}

class Converter {
 public:
  Result<json::value> Convert(const YAML::Node& node, int depth) {
    if (++nodes_ > kMaxNodes || depth > kMaxDepth)
      return Fail(Code::kBadRequest, "too large or nested too deep (line " + Line(node) + ")");
    if (node.IsScalar()) return Scalar(node);
    if (node.IsSequence()) {
      json::array out;
      for (const YAML::Node& item : node) {
        SB_TRY(json::value value, Convert(item, depth + 1));
        out.push_back(std::move(value));
      }
      return out;
    }
    if (!node.IsMap()) return nullptr;
    json::object out;
    for (const auto& pair : node) {
      if (!pair.first.IsScalar()) return Fail(Code::kBadRequest, "a key is no text (line " + Line(node) + ")");
      const std::string& key = pair.first.Scalar();
      if (out.contains(key))
        return Fail(Code::kBadRequest, "the key `" + key + "` is there twice (line " + Line(pair.first) + ")");
      SB_TRY(json::value value, Convert(pair.second, depth + 1));
      out[key] = std::move(value);
    }
    return out;
  }

 private:
  static std::string Line(const YAML::Node& node) { return std::to_string(node.Mark().line + 1); }
  size_t nodes_ = 0;
};

Result<json::array> JsonLines(const std::string& text) {
  json::array out;
  wire::JsonLimits limits;
  limits.bytes = 64 << 20;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto value = wire::ParseJson(line, limits);
    if (!value) return std::unexpected(std::move(value).error().Context("line " + std::to_string(number)));
    out.push_back(std::move(*value));
  }
  return out;
}

}  // namespace

Result<json::value> ParseYaml(const std::string& text) {
  // The library reports by throwing; nothing of that leaves here.
  try {
    const YAML::Node node = YAML::Load(text);
    Converter converter;
    return converter.Convert(node, 0);
  } catch (const YAML::Exception& e) {
    return Fail(Code::kBadRequest, "line " + std::to_string(e.mark.line + 1) + ": " + e.msg);
  }
}

Result<json::array> ReadList(const std::string& path) {
  auto text = ReadFile(path);
  if (!text) return Fail(Code::kBadRequest, text.error().message);
  if (path.ends_with(".jsonl")) {
    auto lines = JsonLines(*text);
    if (!lines) return Fail(Code::kBadRequest, path + ": " + lines.error().message);
    return lines;
  }
  auto value = ParseYaml(*text);
  if (!value) return Fail(Code::kBadRequest, path + ": " + value.error().message);
  if (value->is_object() && value->as_object().contains("steps")) {
    json::value steps = value->as_object().at("steps");
    *value = std::move(steps);
  }
  if (!value->is_array()) return Fail(Code::kBadRequest, path + ": expected a list of steps");
  return std::move(value->as_array());
}

}  // namespace sandbar::llm
