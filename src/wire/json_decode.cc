#include "wire/json_decode.h"

#include <algorithm>
#include <boost/json/error.hpp>
#include <boost/json/kind.hpp>

#include "wire/text.h"

namespace sandbar::wire {

namespace json = boost::json;

namespace {

std::string_view KindName(const json::value& v) {
  switch (v.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "number";
    case json::kind::string:
      return "string";
    case json::kind::array:
      return "array";
    case json::kind::object:
      return "object";
  }
  return "unknown";
}

std::string_view View(json::string_view s) {
  return {s.data(), s.size()};
}

}  // namespace

size_t JsonDecoder::Push(std::string_view key) {
  const size_t n = path_.size();
  if (n != 0 && !key.starts_with('[')) path_.push_back('.');
  // Keys of maps are the caller's text: 32 levels of them must not add up.
  path_.append(key.substr(0, kMaxQuoted));
  return n;
}

void JsonDecoder::Expected(std::string_view what, const json::value& got) {
  Add("", "expected " + std::string(what) + ", got " + std::string(KindName(got)));
}

void JsonDecoder::ReadString(const json::value& v, std::string& out) {
  const auto* s = v.if_string();
  if (s == nullptr) return Expected("string", v);
  // Everything behind this is C strings in the end (argv, paths, SQL text).
  if (s->find('\0') != json::string::npos) return Add("", "must not contain NUL");
  out.assign(s->data(), s->size());
}

void JsonDecoder::ReadBool(const json::value& v, bool& out) {
  if (!v.is_bool()) return Expected("boolean", v);
  out = v.get_bool();
}

void JsonDecoder::ReadDouble(const json::value& v, double& out) {
  if (!v.is_number()) return Expected("number", v);
  boost::system::error_code ec;
  out = v.to_number<double>(ec);
}

std::optional<int64_t> JsonDecoder::ReadInt(const json::value& v, int64_t low, uint64_t high) {
  if (!v.is_number()) {
    Expected("integer", v);
    return std::nullopt;
  }
  boost::system::error_code ec;
  const auto n = v.to_number<int64_t>(ec);
  if (ec == json::error::not_exact && v.is_double()) {
    Add("", "expected integer");
    return std::nullopt;
  }
  if (ec || n < low || (n > 0 && static_cast<uint64_t>(n) > high)) {
    Add("", "must be between " + std::to_string(low) + " and " + std::to_string(high));
    return std::nullopt;
  }
  return n;
}

const json::object* JsonDecoder::ReadObject(const json::value& v) {
  const auto* o = v.if_object();
  if (o == nullptr) Expected("object", v);
  return o;
}

const json::array* JsonDecoder::ReadArray(const json::value& v) {
  const auto* a = v.if_array();
  if (a == nullptr) Expected("array", v);
  return a;
}

void JsonDecoder::UnknownKeys(const json::object& o, const std::vector<std::string>& keys,
                              const std::vector<JsonAlias>& aliases) {
  for (const auto& e : o) {
    const std::string_view key = View(e.key());
    if (key.starts_with("__") || std::ranges::find(keys, key) != keys.end()) continue;
    const auto alias = std::ranges::find(aliases, key, &JsonAlias::alias);
    if (alias != aliases.end()) {
      if (o.contains(json::string_view(alias->key.data(), alias->key.size())))
        Add(key, "is another name of " + Quoted(alias->key) + ", which is given too");
      continue;
    }
    // Finding it takes longer than reading the key, and a body has room for many.
    const std::string_view near = count() < kMaxListed ? Nearest(key, keys) : std::string_view();
    if (near.empty()) {
      Add(key.substr(0, kMaxQuoted), "unknown key");
    } else {
      Add(key.substr(0, kMaxQuoted), "unknown key, did you mean " + Quoted(near) + "?");
    }
  }
}

void JsonDecoder::UnknownEnum(std::string_view got, const std::vector<std::string>& names) {
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : ", ") + Quoted(name);
  Add("", "expected one of " + list + ", got " + Quoted(got));
}

std::string JsonKey(std::string_view member) {
  std::string out;
  bool upper = false;
  for (char c : member) {
    if (c == '_') {
      upper = true;
    } else {
      out.push_back(upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
      upper = false;
    }
  }
  return out;
}

std::string JsonEnumName(std::string_view enumerator) {
  if (enumerator.size() > 1 && enumerator[0] == 'k' && enumerator[1] >= 'A' && enumerator[1] <= 'Z')
    enumerator.remove_prefix(1);
  std::string out;
  for (char c : enumerator) {
    if (c >= 'A' && c <= 'Z' && !out.empty()) out.push_back('-');
    out.push_back(AsciiLower(c));
  }
  return out;
}

const json::value* FindKey(const json::object& o, std::string_view key, const std::vector<JsonAlias>& aliases) {
  if (const auto* v = o.if_contains(json::string_view(key.data(), key.size()))) return v;
  for (const auto& a : aliases) {
    if (a.key != key) continue;
    if (const auto* v = o.if_contains(json::string_view(a.alias.data(), a.alias.size()))) return v;
  }
  return nullptr;
}

}  // namespace sandbar::wire
