// The first flight of a TLS client, as far as it decides where a connection may go: server name, ALPN, ECH.
// Bytes -> values, no fds, no clock. Any thread. Nothing is decrypted or changed; the bytes are passed on as they are.
//
//   SB_TRY(HelloProgress p, ParseClientHello(bytes));   // kProtocol: no ClientHello, or one that can be read two ways
//   if (!p.hello) read until there are p.need bytes;
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbar::wire {

inline constexpr size_t kMaxClientHello = 64 << 10;  // the handshake message
inline constexpr size_t kMaxHelloRecords = 256;      // it may be split over
// More bytes than this are never asked for.
inline constexpr size_t kMaxHelloBytes = kMaxClientHello + 4 + kMaxHelloRecords * 5;

struct ClientHello {
  std::optional<std::string> server_name;  // as sent: any bytes but none empty
  std::vector<std::string> alpn;
  bool ech = false;  // encrypted_client_hello is there: the real one or a decoy, which look the same
};

struct HelloProgress {
  std::optional<ClientHello> hello;  // nothing: not complete yet
  size_t need = 0;                   // then: parsing again makes sense once there are so many bytes
};

// `bytes` start at the first record. kProtocol, or kTooLarge when the hello is longer than the bounds.
Result<HelloProgress> ParseClientHello(std::string_view bytes);

}  // namespace sandbar::wire
