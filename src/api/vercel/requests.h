// Turns request bodies and queries of the Vercel protocol into requests to the domain. Pure functions of text, any
// thread, fuzzed. kBadRequest names every wrong key with its path and the nearest valid one; kUnsupported says which
// part of a valid request this server cannot honour.
//
//   SB_TRY(CreateRequest request, ParseCreate(R"({"runtime":"node24"})", 2));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "sandbox/roles.h"
#include "wire/url.h"

namespace sandbar::api {

struct CreateRequest {
  std::string project;  // empty: not named by the body
  sandbox::CreateSpec spec;
};

struct UpdateRequest {
  sandbox::UpdateSpec spec;
};

struct DriveRequest {
  std::string project;  // empty: not named by the body
  sandbox::DriveSpec spec;
};

struct CommandRequest {
  sandbox::CommandSpec spec;
  bool wait = false;
  bool logs = false;
};

struct PathRequest {
  std::string path;
  std::optional<std::string> cwd;
  bool recursive = false;
};

// `version`: the N of /vN. Without image and runtime v2 means node24, v3 and later the universal image (chosen by
// sandbox/), v1 the legacy runtime.
Result<CreateRequest> ParseCreate(std::string_view body, int version);
Result<UpdateRequest> ParseUpdate(std::string_view body);
Result<sandbox::ForkSpec> ParseFork(std::string_view body);
Result<DriveRequest> ParseDrive(std::string_view body);
// The expiration asked for; an empty body asks for none.
Result<std::optional<int64_t>> ParseSnapshot(std::string_view body);
Result<CommandRequest> ParseCommand(std::string_view body, bool v1);
Result<int> ParseKill(std::string_view body);
Result<PathRequest> ParseRead(std::string_view body);
Result<PathRequest> ParseMakeDir(std::string_view body);
Result<int64_t> ParseExtend(std::string_view body);
Result<std::string> ParseProjectName(std::string_view body);

// What a query asks the sandbox to have, under this key: a class or an engine.
Result<std::optional<store::IsolationDemand>> ParseDemand(const wire::Query& query, std::string_view key);

// limit, cursor, sortBy, sortOrder, namePrefix, tags, name, since, until.
Result<sandbox::ListQuery> ParseListQuery(const wire::Query& query, bool v1);

}  // namespace sandbar::api
