// The first bytes of a redirected connection: read with bounds and a deadline until it is clear who is to be reached.
// Single loop.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "egress/guarded_connect.h"
#include "wire/client_hello.h"

namespace sandbar::egress {

// What a client's first bytes are; decides how it is judged and the language in which a denial is said.
enum class Speech { kUnknownYet, kTls, kHttp, kHttp2, kPostgres, kOther };
Speech Classify(std::string_view first_bytes);
std::string_view KindName(Speech speech);  // "tls", "http" or "tcp", as in Denial and Attempt

struct Opening {
  std::string bytes;  // unread so far by anybody else: they go on to whoever serves the connection
  Speech speech = Speech::kUnknownYet;
  std::optional<wire::ClientHello> hello;  // of TLS, once it is whole
  bool postgres = false;  // the TLS was asked for with a PostgreSQL SSLRequest, which has been answered
  bool done = false;      // nothing more is to be learned by reading
  std::string problem;    // why it could not be read to the end: "said nothing", "…"
};

// Reads until `opening->done`; a failure (end, deadline, too long, malformed) is a `problem`, not an error. Answers a
// PostgreSQL client's requests for encryption on the way. kCancelled only.
Task<> ReadOpening(Stream* guest, Opening* opening, std::chrono::milliseconds timeout);
// Enough to know the language of a denial: no ClientHello, no request for encryption is answered.
Task<> ReadSpeech(Stream* guest, Opening* opening, std::chrono::milliseconds timeout);

inline constexpr std::string_view kPostgresSslRequest("\x00\x00\x00\x08\x04\xd2\x16\x2f", 8);
inline constexpr std::string_view kPostgresGssRequest("\x00\x00\x00\x08\x04\xd2\x16\x30", 8);

}  // namespace sandbar::egress
