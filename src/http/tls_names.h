// A second certificate on one listener, chosen by the name that the client asks for (SNI). Called once, before the
// server listens.
#pragma once

#include <string>

#include "http/tls.h"

namespace sandbar::http {

// From now on clients of `base` that name a host under `suffix` (".preview.example") get the certificate of `other`,
// which `base` keeps alive. Once per context.
Result<> AddTlsName(const TlsContext& base, const std::string& suffix, TlsContext other);

}  // namespace sandbar::http
