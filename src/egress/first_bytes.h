// The first bytes of a redirected connection, read with bounds and a deadline until they tell which server the client
// wants. Single loop; the EgressConnection owns them.
//
//   FirstBytes first_bytes;
//   SB_CO_TRYV(co_await ReadFirstBytes(&guest, &first_bytes, config->first_bytes_timeout));
//   if (first_bytes.hello) …                     // TLS: the ClientHello names the server
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "egress/guarded_connect.h"
#include "wire/client_hello.h"

namespace sandbar::egress {

// The protocol that a client speaks. It says how the policy decides about the client, and the protocol in which a
// denial is sent.
enum class AppProtocol { kUnknownYet, kTls, kHttp, kHttp2, kPostgres, kOther };
AppProtocol Classify(std::string_view first_bytes);
std::string_view KindName(AppProtocol protocol);  // "tls", "http" or "tcp", as in Denial and Attempt

struct FirstBytes {
  std::string bytes;  // nobody else has read them: they go on to the upstream or to the interceptor
  AppProtocol protocol = AppProtocol::kUnknownYet;
  std::optional<wire::ClientHello> hello;  // of TLS, once it is whole
  bool postgres = false;  // the TLS was asked for with a PostgreSQL SSLRequest, which has been answered
  bool done = false;      // nothing more is to be learned by reading
  std::string problem;    // why it could not be read to the end: "said nothing", "…"
};

// Reads until `first_bytes->done`; a failure (end, deadline, too long, malformed) is a `problem`, not an error. Answers
// a PostgreSQL client's requests for encryption on the way. kCancelled only.
Task<> ReadFirstBytes(Stream* guest, FirstBytes* first_bytes, std::chrono::milliseconds timeout);
// Reads only until the protocol is clear, to answer a denial in it. Answers no request for encryption.
Task<> ReadProtocol(Stream* guest, FirstBytes* first_bytes, std::chrono::milliseconds timeout);

inline constexpr std::string_view kPostgresSslRequest("\x00\x00\x00\x08\x04\xd2\x16\x2f", 8);
inline constexpr std::string_view kPostgresGssRequest("\x00\x00\x00\x08\x04\xd2\x16\x30", 8);

}  // namespace sandbar::egress
