// What is wrong with a request body: each problem with the path of its value, gathered into one kBadRequest. The
// decoder (wire/json_decode.h) fills it, and a struct's own Check(JsonIssues&) adds to it. A value of one thread.
//
//   void Check(JsonIssues& issues) const { issues.Range("vcpus", vcpus, 1, 32); }
//   …
//   if (!issues.ok()) return std::unexpected(issues.ToError());   // "Invalid request: `vcpus`: must be between 1 and
//   32"
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "wire/json_traits.h"

namespace sandbar::wire {

// The problems found so far, each with the path where the decoder stood.
class JsonIssues {
 public:
  static constexpr size_t kMaxListed = 10;   // issues spelled out in one answer
  static constexpr size_t kMaxQuoted = 100;  // bytes of the caller's text repeated in one issue
  // The text in backticks, cut at kMaxQuoted.
  static std::string Quoted(std::string_view text);
  // `key` is relative to the value being decoded; empty means that value itself.
  void Add(std::string_view key, std::string_view problem);
  template <class T, class L, class H>
  void Range(std::string_view key, const T& value, L low, H high) {
    if constexpr (json_detail::kIsOptional<T>) {
      if (value) Range(key, *value, low, high);
    } else if (std::cmp_less(value, low) || std::cmp_greater(value, high)) {
      Add(key, "must be between " + std::to_string(low) + " and " + std::to_string(high));
    }
  }
  // Strings (bytes), vectors and maps.
  template <class T>
  void Size(std::string_view key, const T& value, size_t low, size_t high) {
    if constexpr (json_detail::kIsOptional<T>) {
      if (value) Size(key, *value, low, high);
    } else if (value.size() < low || value.size() > high) {
      AddSize(key, low, high, std::is_convertible_v<T, std::string_view>);
    }
  }
  bool ok() const { return count_ == 0; }
  size_t count() const { return count_; }
  Error ToError() const;

 protected:
  // Path of the value being decoded, "" at the root, e.g. "resources.vcpus" or "ports[1]".
  std::string path_;

 private:
  void AddSize(std::string_view key, size_t low, size_t high, bool text);
  std::string message_;
  size_t count_ = 0;
};

}  // namespace sandbar::wire
