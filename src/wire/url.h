// Percent-encoding, query strings and the absolute URLs that the client dials. Strict: what is not well formed is an
// error (kBadRequest), never a guess. Pure functions, any thread.
//
//   SB_TRY(auto query, ParseQuery("limit=20&tags=a%3Ab"));   // {{"limit","20"},{"tags","a:b"}}
//   auto limit = query.Get("limit");                          // std::optional<std::string_view>
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sandbar::wire {

// One path segment or query part. Fails on a bad escape, on NUL and on bytes that are not UTF-8. '+' stays '+'.
Result<std::string> PercentDecode(std::string_view s);

// "/a/b%2Fc" -> {"a", "b/c"}: splits first, decodes after, so an escaped slash never makes a new segment. Empty
// segments are kept ("/a//b" -> {"a","","b"}), a lone "/" gives none.
Result<std::vector<std::string>> SplitPath(std::string_view path);

struct Query {
  std::vector<std::pair<std::string, std::string>> pairs;  // in the order sent
  // First value of a name; nullopt when absent.
  std::optional<std::string_view> Get(std::string_view name) const;
  std::vector<std::string_view> GetAll(std::string_view name) const;
};
// application/x-www-form-urlencoded: '+' is a space. At most 256 pairs.
Result<Query> ParseQuery(std::string_view query);

// As encodeURIComponent: everything but A-Za-z0-9 - _ . ! ~ * ' ( ) is escaped.
std::string EncodeComponent(std::string_view s);
std::string EncodeQuery(const std::vector<std::pair<std::string, std::string>>& pairs);

struct Url {
  std::string scheme;  // "http" or "https"
  std::string host;    // without brackets
  uint16_t port = 0;
  std::string target;  // origin-form: path and query, at least "/"
  // Value of the Host header: brackets for IPv6, port unless it is the scheme's.
  std::string HostHeader() const;
};
// http and https only; no user info, no fragment sent on.
Result<Url> ParseUrl(std::string_view url);

}  // namespace sandbar::wire
