// The kinds of members that the decoder of request bodies tells apart (wire/json_decode.h). Types only, for any thread.
//
//   if constexpr (json_detail::kIsOptional<T>) …
#pragma once

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace sandbar::wire::json_detail {

template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
constexpr bool kIsVector = false;
template <class T>
constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
constexpr bool kIsMap = false;
template <class T>
constexpr bool kIsMap<std::map<std::string, T>> = true;
template <class T>
constexpr bool kIsMap<std::unordered_map<std::string, T>> = true;
template <class T>
constexpr bool kIsClearable = false;
template <class T>
constexpr bool kIsClearable<std::optional<std::optional<T>>> = true;
template <class T>
constexpr bool kMayBeAbsent = kIsOptional<T> || kIsVector<T> || kIsMap<T> || std::is_same_v<T, bool>;

}  // namespace sandbar::wire::json_detail
