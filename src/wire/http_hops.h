// Which header fields of a message belong to one connection, so that no proxy passes them on (RFC 9110, 7.6.1). This is
// the only such table: interception (egress/intercept_request, egress/intercept_response) and previews
// (ingress/ingress) use it. Pure functions, any thread.
#pragma once

#include <vector>

#include "wire/http1.h"

namespace sandbar::wire {

// The fields of a message without those of its connection, in their order. Those are: the fixed names (framing too,
// because each connection has its own), everything that begins with "proxy-", and the names in the message's Connection
// fields.
std::vector<HttpField> EndToEndFields(const std::vector<HttpField>& fields);

}  // namespace sandbar::wire
