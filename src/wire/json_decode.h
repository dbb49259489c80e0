// Request bodies -> structs, with every problem named by its path. Structs are described once with Boost.Describe.
//
//   struct Resources {
//     std::optional<int> vcpus;                              // key "vcpus"
//     std::optional<int> memory;
//     static constexpr JsonAlias kJsonAliases[] = {{"vcpu", "vcpus"}};         // also accepted
//     void Check(JsonIssues& issues) const { issues.Range("vcpus", vcpus, 1, 32); }
//   };
//   BOOST_DESCRIBE_STRUCT(Resources, (), (vcpus, memory))
//   …
//   SB_TRY(auto body, DecodeJson<CreateBody>(text));
//   // kBadRequest "Invalid request: `resources.vcpu5`: unknown key, did you mean `vcpus`?; `name`: is required"
//
// Members are snake_case, keys camelCase: project_id <-> "projectId"; a trailing underscore is dropped (default_).
// Types: bool, integers (range-checked, 3.0 counts as 3), double, std::string (no NUL), std::optional, std::vector,
// std::map<std::string, T> (also unordered), described structs, described enums (kAllowAll <-> "allow-all"),
// boost::json::value (anything), and any type with `void ReadJson(JsonDecoder& d, const boost::json::value& v)`.
// A member that is not optional, vector, map or bool is required. null is an error, but for
// std::optional<std::optional<T>>, where it means "clear": absent = nullopt, null = engaged and empty.
// Unknown keys are errors unless they begin with "__". Check() runs when the struct itself decoded without issues.
#pragma once

#include <boost/describe.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <boost/mp11/algorithm.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "wire/json_issues.h"
#include "wire/json_parse.h"
#include "wire/json_traits.h"

namespace sandbar::wire {

struct JsonAlias {
  std::string_view alias;
  std::string_view key;
};

class JsonDecoder : public JsonIssues {
 public:
  template <class T>
  void Read(const boost::json::value& v, T& out);
  // Runs `f` with `key` (or "[index]") on the path.
  template <class F>
  void At(std::string_view key, F f) {
    size_t n = Push(key);
    f();
    path_.resize(n);
  }

 private:
  size_t Push(std::string_view key);
  void Expected(std::string_view what, const boost::json::value& got);
  void ReadString(const boost::json::value& v, std::string& out);
  void ReadBool(const boost::json::value& v, bool& out);
  void ReadDouble(const boost::json::value& v, double& out);
  std::optional<int64_t> ReadInt(const boost::json::value& v, int64_t low, uint64_t high);
  const boost::json::object* ReadObject(const boost::json::value& v);
  const boost::json::array* ReadArray(const boost::json::value& v);
  void UnknownKeys(const boost::json::object& o, const std::vector<std::string>& keys,
                   const std::vector<JsonAlias>& aliases);
  void UnknownEnum(std::string_view got, const std::vector<std::string>& names);

  template <class T>
  void ReadStruct(const boost::json::value& v, T& out);
  template <class T>
  void ReadEnum(const boost::json::value& v, T& out);
};

// "project_id" -> "projectId", "default_" -> "default".
std::string JsonKey(std::string_view member);
// "kAllowAll" -> "allow-all".
std::string JsonEnumName(std::string_view enumerator);
// The value of `key`, or else of an alias of it.
const boost::json::value* FindKey(const boost::json::object& o, std::string_view key,
                                  const std::vector<JsonAlias>& aliases);

namespace json_detail {
template <class T>
concept ReadsItself = requires(T& t, JsonDecoder& d, const boost::json::value& v) { t.ReadJson(d, v); };
template <class T>
std::vector<JsonAlias> Aliases() {
  if constexpr (requires { T::kJsonAliases; }) {
    return {std::begin(T::kJsonAliases), std::end(T::kJsonAliases)};
  } else {
    return {};
  }
}
}  // namespace json_detail

template <class T>
void JsonDecoder::Read(const boost::json::value& v, T& out) {
  namespace d = json_detail;
  if constexpr (d::ReadsItself<T>) {
    out.ReadJson(*this, v);
  } else if constexpr (std::is_same_v<T, boost::json::value>) {
    out = v;
  } else if constexpr (d::kIsClearable<T>) {
    out.emplace();
    if (!v.is_null()) Read(v, out->emplace());
  } else if constexpr (json_detail::kIsOptional<T>) {
    Read(v, out.emplace());
  } else if constexpr (std::is_same_v<T, bool>) {
    ReadBool(v, out);
  } else if constexpr (std::is_same_v<T, std::string>) {
    ReadString(v, out);
  } else if constexpr (std::is_same_v<T, double>) {
    ReadDouble(v, out);
  } else if constexpr (std::is_integral_v<T>) {
    // 64 bits unsigned would need a second path; no field of the protocol is that large.
    using L = std::numeric_limits<T>;
    constexpr uint64_t kMax = INT64_MAX;
    constexpr uint64_t kHigh = static_cast<uint64_t>(L::max()) < kMax ? static_cast<uint64_t>(L::max()) : kMax;
    if (auto n = ReadInt(v, static_cast<int64_t>(L::min()), kHigh)) out = static_cast<T>(*n);
  } else if constexpr (d::kIsVector<T>) {
    const auto* a = ReadArray(v);
    if (a == nullptr) return;
    out.clear();
    for (const auto& e : *a) At("[" + std::to_string(out.size()) + "]", [&] { Read(e, out.emplace_back()); });
  } else if constexpr (d::kIsMap<T>) {
    const auto* o = ReadObject(v);
    if (o == nullptr) return;
    out.clear();
    for (const auto& e : *o) At(e.key(), [&] { Read(e.value(), out[std::string(e.key())]); });
  } else if constexpr (std::is_enum_v<T>) {
    ReadEnum(v, out);
  } else {
    ReadStruct(v, out);
  }
}

template <class T>
void JsonDecoder::ReadStruct(const boost::json::value& v, T& out) {
  static_assert(boost::describe::has_describe_members<T>::value, "BOOST_DESCRIBE_STRUCT is missing");
  const auto* o = ReadObject(v);
  if (o == nullptr) return;
  const size_t before = count();
  const auto aliases = json_detail::Aliases<T>();
  std::vector<std::string> keys;
  boost::mp11::mp_for_each<boost::describe::describe_members<T, boost::describe::mod_public>>([&](auto d) {
    using M = std::remove_cvref_t<decltype(out.*d.pointer)>;
    const std::string& key = keys.emplace_back(JsonKey(d.name));
    if (const auto* e = FindKey(*o, key, aliases)) {
      At(key, [&] { Read(*e, out.*d.pointer); });
    } else if constexpr (!json_detail::kMayBeAbsent<M>) {
      Add(key, "is required");
    }
  });
  UnknownKeys(*o, keys, aliases);
  if constexpr (requires(JsonIssues& i) { out.Check(i); }) {
    if (count() == before) out.Check(*this);
  }
}

template <class T>
void JsonDecoder::ReadEnum(const boost::json::value& v, T& out) {
  std::string text;
  const size_t before = count();
  ReadString(v, text);
  if (count() != before) return;
  std::vector<std::string> names;
  bool found = false;
  boost::mp11::mp_for_each<boost::describe::describe_enumerators<T>>([&](auto d) {
    if (text == names.emplace_back(JsonEnumName(d.name))) {
      out = d.value;
      found = true;
    }
  });
  if (!found) UnknownEnum(text, names);
}

template <class T>
Result<T> DecodeValue(const boost::json::value& v) {
  T out{};
  JsonDecoder d;
  d.Read(v, out);
  if (!d.ok()) return std::unexpected(d.ToError());
  return out;
}

template <class T>
Result<T> DecodeJson(std::string_view text, JsonLimits limits = {}) {
  SB_TRY(auto v, ParseJson(text, limits));
  return DecodeValue<T>(v);
}

}  // namespace sandbar::wire
