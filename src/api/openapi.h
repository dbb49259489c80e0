// GET /openapi.json. The paths come from the route table, so that the document has every route and no other; what is
// said about each comes from sdk/openapi.json, where an operation is found by its row ("POST /v2|v3|v4/sandboxes").
// Pure function, any thread.
//
// An operation in the source is short: operationId, summary, query {name: schema}, body {media type: schema},
// bodyOptional, status (200 when absent), answer {media type: schema}. A row without one is listed bare; a test finds
// it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/routes.h"

namespace sandbar::api {

std::string OpenApiText(std::span<const Route> table, std::string_view source, std::string_view version);

}  // namespace sandbar::api
