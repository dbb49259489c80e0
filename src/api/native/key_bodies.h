// JSON bodies that describe keys: in the requests and answers of /x/v1/keys, and of /x/v1/logins, which makes keys too.
//
//   SB_CO_TRY(GrantBody body, wire::DecodeJson<GrantBody>(text));
//   json::object answer{{"key", KeyJson(made->key)}};
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/auth.h"
#include "store/records.h"
#include "wire/json_decode.h"

namespace sandbar::store {
BOOST_DESCRIBE_ENUM(KeyRole, kViewer, kOperator, kAdmin)
}  // namespace sandbar::store

namespace sandbar::api {

inline constexpr size_t kLongestKeyName = 64;
inline constexpr int64_t kShortestKeyLifeMs = 1000;

// Names end up in messages, logs and terminals.
inline bool IsKeyNameChar(char c) {
  constexpr std::string_view kSigns = " ._-@:/";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || kSigns.contains(c);
}

// What a key may do, and for how long.
struct GrantBody {
  std::optional<store::KeyRole> role;
  std::optional<std::string> project;
  std::optional<int64_t> expires_in;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"projectId", "project"}};
  void Check(wire::JsonIssues& issues) const {
    if (project && *project != "*" && !PlausibleId(*project))
      issues.Add("project", "must be the id of a project, or * for every project of the team");
    issues.Range("expiresIn", expires_in, kShortestKeyLifeMs, sandbox::kMaxKeyLifeMs);
  }
  // The project as keys name it; empty: that of the call.
  std::string Project() const {
    return std::string(project == kCliDefaultProject ? kDefaultProject : std::string_view(project.value_or("")));
  }
};
BOOST_DESCRIBE_STRUCT(GrantBody, (), (role, project, expires_in))

// "active", "expired" or "revoked".
std::string_view StateOf(const store::Key& key, int64_t now);
boost::json::object KeyJson(const store::Key& key);

}  // namespace sandbar::api
