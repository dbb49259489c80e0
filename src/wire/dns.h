// DNS messages as far as a relay needs them: the question, the flags, EDNS with extended errors (RFC 8914).
// Bytes <-> values, no fds, no clock. Any thread. Answer records are passed through by the caller as bytes, never
// decoded.
//
//   auto query = ParseDnsQuery(datagram);               // hostile: bounded, no compression pointers in a question
//   std::string no = EncodeDnsError(*query, DnsRcode::kNxDomain, kEdeBlocked, "denied by policy");
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbar::wire {

inline constexpr size_t kDnsMaxQuery = 1024;     // longest query that we look at; real ones are below 300 bytes
inline constexpr size_t kDnsPlainUdp = 512;      // longest UDP answer for a client without EDNS
inline constexpr size_t kDnsEdnsUdp = 1232;      // the EDNS size that we offer and honour
inline constexpr size_t kDnsMaxExtraText = 160;  // longest EXTRA-TEXT that we send
inline constexpr uint16_t kDnsTypeA = 1;
inline constexpr uint16_t kDnsTypeAaaa = 28;
inline constexpr uint16_t kDnsTypeAny = 255;
inline constexpr uint16_t kDnsClassIn = 1;

enum class DnsRcode : uint8_t { kNoError = 0, kFormErr = 1, kServFail = 2, kNxDomain = 3, kNotImp = 4, kRefused = 5 };

// INFO-CODEs of RFC 8914.
inline constexpr uint16_t kEdeBlocked = 15;
inline constexpr uint16_t kEdeProhibited = 18;
inline constexpr uint16_t kEdeNetworkError = 23;

struct DnsQuery {
  uint16_t id = 0;
  bool recursion_desired = true;
  bool checking_disabled = false;
  std::string name;  // wire form: length-prefixed labels with the final zero, case kept
  uint16_t type = 0;
  uint16_t klass = kDnsClassIn;
  bool edns = false;
  bool dnssec_ok = false;
  uint16_t udp_size = kDnsPlainUdp;  // what the sender can take, clamped to [512, 1232]
};

struct DnsReplyHead {
  uint16_t id = 0;
  bool truncated = false;
  DnsRcode rcode = DnsRcode::kNoError;
  // Where the question ends: everything before it is what an answer without records keeps.
  size_t question_end = 0;
};

// A standard query with exactly one question and at most an OPT record. kProtocol when it is anything
// else (see EncodeDnsFormErr).
Result<DnsQuery> ParseDnsQuery(std::string_view bytes);
// Whether `bytes` answer `query` (id, QR, opcode, question equal but for case). kProtocol when not.
Result<DnsReplyHead> ParseDnsReply(std::string_view bytes, const DnsQuery& query);

// The addresses that a reply to `query` (A or AAAA; one that ParseDnsReply took) gives, 4 or 16 raw bytes each, at most
// `limit`. Records of other types (the aliases on the way) are passed over; a malformed rest ends the list.
std::vector<std::string> DnsAddresses(std::string_view reply, const DnsQuery& query, size_t limit);

std::string EncodeDnsQuery(const DnsQuery& query);
// An answer without records. The extended error goes along when the query had EDNS; ede 0: none.
std::string EncodeDnsError(const DnsQuery& query, DnsRcode rcode, uint16_t ede, std::string_view text);
// An answer with one A record (`v4` is 4 raw bytes) that may be kept for `ttl` seconds.
std::string EncodeDnsAddress(const DnsQuery& query, std::string_view v4, uint32_t ttl);
// An empty answer with TC set: "ask again by TCP".
std::string EncodeDnsTruncated(const DnsQuery& query);
// FORMERR for bytes that are no query we understand; nothing when not even a query's header is there.
std::optional<std::string> EncodeDnsFormErr(std::string_view bytes);

// "example.com" (root: "."); bytes other than letters, digits, '-' and '_' as \DDD, so it is safe to log.
std::string DnsNameText(std::string_view wire_name);
// From text without escapes; kBadRequest when a label is empty or longer than 63 or the name longer than 255.
Result<std::string> DnsNameFromText(std::string_view text);

}  // namespace sandbar::wire
