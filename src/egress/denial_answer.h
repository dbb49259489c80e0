// The answer that a denied client gets: the bytes of a denial in the client's own protocol. Values without I/O, for any
// thread.
#pragma once

#include <string>

#include "egress/egress.h"
#include "egress/first_bytes.h"

namespace sandbar::egress {

// {"error":{"code":"egress_denied","host":…,"rule":…,"hint":…,"message":…}}
std::string DenialBody(const Denial& denial);
// HTTP 403 with that body, a TLS alert access_denied, or nothing where only a reset remains.
std::string DenialBytes(const Denial& denial, const FirstBytes& first_bytes);
// The server name of what was read so far, canonical; empty when there is none.
std::string NameIn(const FirstBytes& first_bytes);

}  // namespace sandbar::egress
