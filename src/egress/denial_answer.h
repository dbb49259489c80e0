// How a refused client is told: the bytes of a denial in the language that it spoke. Values only; any thread.
#pragma once

#include <string>

#include "egress/egress.h"
#include "egress/first_bytes.h"

namespace sandbar::egress {

// {"error":{"code":"egress_denied","host":…,"rule":…,"hint":…,"message":…}}
std::string RefusalBody(const Denial& denial);
// HTTP 403 with that body, a TLS alert access_denied, or nothing where only a reset remains.
std::string RefusalBytes(const Denial& denial, const Opening& opening);
// The server name of what was read so far, canonical; empty when there is none.
std::string NameIn(const Opening& opening);

}  // namespace sandbar::egress
