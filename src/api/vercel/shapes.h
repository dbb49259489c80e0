// Domain values -> the protocol's JSON objects. Required keys are always there, unknown optional ones are left out, and
// null stands only where clients accept it (exitCode, pagination). Timestamps are milliseconds since the epoch.
// Pure functions, any thread.
//
// v1 calls a session "sandbox": the wrapper key and the id keys differ (WrapperKey, CommandJson), the objects do not.
#pragma once

#include <boost/json/fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sandbox/roles.h"
#include "store/records.h"

namespace sandbar::api {

// The port that the protocol reserves for the interactive shell. Nothing listens there, so it is not part of a session.
// Only the answer to a create or fork that says `__interactive` names it: the protocol's CLI takes a sandbox without it
// for one that was not made, and leaves it running.
inline constexpr int kInteractivePort = 26661;

// `current`: the sandbox's session, where known; gives expiresAt while it runs.
boost::json::object SandboxJson(const store::Sandbox& sandbox, const store::Session* current);
boost::json::object SessionJson(const store::Session& session);
boost::json::object SnapshotJson(const store::Snapshot& snapshot, bool v1);
boost::json::object DriveJson(const sandbox::DriveView& view);
boost::json::object CommandJson(const store::Command& command, bool v1);

// Where a preview with a given name is reached: "http://" name ".localhost:8787".
struct PreviewUrls {
  std::string before, after;
};
boost::json::array RoutesJson(const std::vector<store::PortRoute>& routes, const PreviewUrls& urls);

// {sandbox, session, routes[, resumed]}; v1: {sandbox: <session>, routes}.
boost::json::object ViewJson(const sandbox::SandboxView& view, const PreviewUrls& urls, bool v1, bool with_resumed);
// {session, routes}; v1: {sandbox, routes}.
std::string_view WrapperKey(bool v1);

// v2: opaque cursor or null.
boost::json::object PaginationJson(size_t count, const std::string& next);
// v1: createdAt bounds of the neighbouring pages.
boost::json::object NumericPaginationJson(size_t count, std::optional<int64_t> next, std::optional<int64_t> prev);

}  // namespace sandbar::api
