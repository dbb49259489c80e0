// Queries from guests and replies from resolvers: the parser must bound everything, and whatever it accepts must
// survive being written and read again.
#include "wire/dns.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

using namespace sandbar::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view in(reinterpret_cast<const char*>(data), size);
  if (auto query = ParseDnsQuery(in)) {
    auto again = ParseDnsQuery(EncodeDnsQuery(*query));
    if (!again || again->name != query->name || again->type != query->type || again->id != query->id) std::abort();
    for (std::string reply :
         {EncodeDnsError(*query, DnsRcode::kNxDomain, kEdeProhibited, "text"), EncodeDnsTruncated(*query)})
      if (!ParseDnsReply(reply, *query) || reply.size() > kDnsPlainUdp) std::abort();
    if (DnsNameText(query->name).size() > 4 * query->name.size() + 1) std::abort();
    auto own = DnsAddresses(EncodeDnsAddress(*query, "\x01\x02\x03\x04", 30), *query, 16);
    if (query->type == kDnsTypeA && query->klass == kDnsClassIn && own.size() != 1) std::abort();
    // The same bytes as somebody's answer to this query.
    (void)ParseDnsReply(in, *query);
  }
  DnsQuery fixed;
  fixed.id = 0x3031;
  fixed.name = *DnsNameFromText("example.org");
  fixed.type = kDnsTypeA;
  if (auto head = ParseDnsReply(in, fixed); head && head->question_end > size) std::abort();
  for (uint16_t type : {kDnsTypeA, kDnsTypeAaaa}) {
    fixed.type = type;
    for (const auto& address : DnsAddresses(in, fixed, 16))
      if (address.size() != (type == kDnsTypeA ? 4 : 16)) std::abort();
  }
  (void)EncodeDnsFormErr(in);
  (void)DnsNameText(in);
  (void)DnsNameFromText(in);
  return 0;
}
