#include "wire/dns.h"

#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

DnsQuery Query(std::string_view name, bool edns = false) {
  DnsQuery q;
  q.id = 0x1234;
  q.name = *DnsNameFromText(name);
  q.type = kDnsTypeA;
  q.edns = edns;
  return q;
}

TEST(Dns, QueryRoundTrip) {
  DnsQuery q = Query("Registry.Example.org", true);
  q.dnssec_ok = true;
  q.checking_disabled = true;
  auto back = ParseDnsQuery(EncodeDnsQuery(q));
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->id, 0x1234);
  EXPECT_EQ(back->name, q.name);  // case kept
  EXPECT_EQ(back->type, kDnsTypeA);
  EXPECT_EQ(back->klass, kDnsClassIn);
  EXPECT_TRUE(back->edns);
  EXPECT_TRUE(back->dnssec_ok);
  EXPECT_TRUE(back->recursion_desired);
  EXPECT_TRUE(back->checking_disabled);
  EXPECT_EQ(back->udp_size, kDnsEdnsUdp);
}

TEST(Dns, NoEdnsMeansPlainSize) {
  auto back = ParseDnsQuery(EncodeDnsQuery(Query("a.b")));
  ASSERT_TRUE(back.has_value());
  EXPECT_FALSE(back->edns);
  EXPECT_EQ(back->udp_size, kDnsPlainUdp);
}

TEST(Dns, KnownBytes) {
  // dig example.com A without EDNS, id 0xabcd, RD and AD set.
  std::string_view bytes(
      "\xab\xcd\x01\x20\x00\x01\x00\x00\x00\x00\x00\x00\x07"
      "example\x03"
      "com\x00\x00\x01\x00\x01",
      29);
  auto q = ParseDnsQuery(bytes);
  ASSERT_TRUE(q.has_value()) << q.error().message;
  EXPECT_EQ(q->id, 0xabcd);
  EXPECT_EQ(DnsNameText(q->name), "example.com");
}

TEST(Dns, RejectsWhatIsNoQuery) {
  std::string good = EncodeDnsQuery(Query("example.com", true));
  auto with = [&](size_t at, char c) {
    std::string s = good;
    s[at] = c;
    return s;
  };
  EXPECT_FALSE(ParseDnsQuery(with(2, '\x80')));   // a reply
  EXPECT_FALSE(ParseDnsQuery(with(2, '\x28')));   // UPDATE
  EXPECT_FALSE(ParseDnsQuery(with(5, 2)));        // two questions
  EXPECT_FALSE(ParseDnsQuery(with(7, 1)));        // an answer in a query
  EXPECT_FALSE(ParseDnsQuery(with(11, 2)));       // two additional records
  EXPECT_FALSE(ParseDnsQuery(with(11, 0)));       // bytes that nothing accounts for
  EXPECT_FALSE(ParseDnsQuery(with(12, '\xc0')));  // compression pointer
  EXPECT_FALSE(ParseDnsQuery(with(12, 64)));      // label too long
  EXPECT_FALSE(ParseDnsQuery(good + "x"));        // OPT length disagrees
  EXPECT_FALSE(ParseDnsQuery(std::string(kDnsMaxQuery + 1, '\0')));
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(ParseDnsQuery(good.substr(0, n))) << n;
}

TEST(Dns, NameOf255IsTheLongest) {
  std::string label(63, 'a');
  std::string longest = label + "." + label + "." + label + "." + std::string(61, 'a');
  auto name = DnsNameFromText(longest);
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->size(), 255u);
  EXPECT_FALSE(DnsNameFromText(longest + "a"));
  DnsQuery q = Query("x");
  q.name = *name;
  EXPECT_TRUE(ParseDnsQuery(EncodeDnsQuery(q)));
  q.name.insert(0,
                "\x01"
                "b");
  EXPECT_FALSE(ParseDnsQuery(EncodeDnsQuery(q)));
}

TEST(Dns, ReplyMustAnswerTheQuestion) {
  DnsQuery q = Query("example.com", true);
  std::string reply = EncodeDnsError(q, DnsRcode::kNxDomain, kEdeBlocked, "no");
  auto head = ParseDnsReply(reply, q);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->rcode, DnsRcode::kNxDomain);
  EXPECT_FALSE(head->truncated);

  DnsQuery upper = q;
  upper.name = *DnsNameFromText("EXAMPLE.com");
  EXPECT_TRUE(ParseDnsReply(reply, upper));
  DnsQuery other = q;
  other.id = 1;
  EXPECT_FALSE(ParseDnsReply(reply, other));
  other = q;
  other.type = kDnsTypeAaaa;
  EXPECT_FALSE(ParseDnsReply(reply, other));
  other = q;
  other.name = *DnsNameFromText("examplf.com");
  EXPECT_FALSE(ParseDnsReply(reply, other));
  EXPECT_FALSE(ParseDnsReply(EncodeDnsQuery(q), q));  // QR not set
  for (size_t n = 0; n < 12 + q.name.size() + 4; ++n) EXPECT_FALSE(ParseDnsReply(reply.substr(0, n), q)) << n;
}

TEST(Dns, ExtendedErrorOnlyWithEdns) {
  std::string with = EncodeDnsError(Query("a.b", true), DnsRcode::kNxDomain, kEdeProhibited, "because");
  // …OPT rdata: option 15, length 2 + 7, info-code 18, text
  EXPECT_TRUE(
      with.ends_with(std::string("\x00\x0f\x00\x09\x00\x12"
                                 "because",
                                 13)));
  EXPECT_EQ(with[11], 1);
  std::string without = EncodeDnsError(Query("a.b"), DnsRcode::kNxDomain, kEdeProhibited, "because");
  EXPECT_FALSE(without.contains("because"));
  EXPECT_EQ(without[11], 0);
  std::string bounded = EncodeDnsError(Query("a.b", true), DnsRcode::kNxDomain, 15, std::string(5000, 'x'));
  EXPECT_LE(bounded.size(), kDnsPlainUdp);
}

TEST(Dns, Truncated) {
  DnsQuery q = Query("a.b", true);
  auto head = ParseDnsReply(EncodeDnsTruncated(q), q);
  ASSERT_TRUE(head.has_value());
  EXPECT_TRUE(head->truncated);
}

TEST(Dns, FormErrOnlyForQueries) {
  std::string odd = EncodeDnsQuery(Query("a.b"));
  odd[5] = 3;
  auto answer = EncodeDnsFormErr(odd);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->size(), 12u);
  EXPECT_EQ((*answer)[0], odd[0]);
  EXPECT_EQ((*answer)[3] & 0xf, 1);
  odd[2] = static_cast<char>(odd[2] | 0x28);
  EXPECT_EQ((*EncodeDnsFormErr(odd))[3] & 0xf, 4);  // NOTIMP for another opcode
  odd[2] = static_cast<char>(odd[2] | 0x80);
  EXPECT_FALSE(EncodeDnsFormErr(odd));
  EXPECT_FALSE(EncodeDnsFormErr("short"));
}

TEST(Dns, NameText) {
  EXPECT_EQ(DnsNameText(*DnsNameFromText("a.example.")), "a.example");
  EXPECT_EQ(DnsNameText(std::string_view("\0", 1)), ".");
  EXPECT_EQ(DnsNameText(std::string_view("\x03"
                                         "a\n.\x00",
                                         5)),
            "a\\010\\046");
  EXPECT_EQ(DnsNameText("\x05"
                        "ab"),
            ".");  // cut short: never reads past the end
  EXPECT_FALSE(DnsNameFromText("a..b"));
  EXPECT_FALSE(DnsNameFromText(".a"));
  EXPECT_FALSE(DnsNameFromText(std::string(64, 'a')));
}

TEST(Dns, AddressRoundTrip) {
  for (bool edns : {false, true}) {
    DnsQuery q = Query("a.example.test", edns);
    std::string reply = EncodeDnsAddress(q, std::string("\xc6\x12\x00\x01", 4), 30);
    ASSERT_TRUE(ParseDnsReply(reply, q));
    EXPECT_EQ(DnsAddresses(reply, q, 16), (std::vector<std::string>{std::string("\xc6\x12\x00\x01", 4)}));
    EXPECT_TRUE(DnsAddresses(reply, q, 0).empty());
    q.type = kDnsTypeAaaa;
    EXPECT_TRUE(DnsAddresses(reply, q, 16).empty());
  }
}

TEST(Dns, AddressesPassOverAliasesAndStopAtGarbage) {
  DnsQuery q = Query("a.test");
  std::string reply = EncodeDnsError(q, DnsRcode::kNoError, 0, "");
  reply[7] = 3;  // answers
  auto record = [](std::string name, char type, const std::string& data) {
    return name + std::string{'\0', type, '\0', '\1', 0, 0, 0, 9, 0, static_cast<char>(data.size())} + data;
  };
  reply += record("\xc0\x0c", 5, std::string("\1b\4test\0", 8));  // alias
  reply += record(std::string("\1b\4test\0", 8), 1, "abcd");
  reply += record("\xc0\x0c", 1, "efgh");
  EXPECT_EQ(DnsAddresses(reply, q, 16), (std::vector<std::string>{"abcd", "efgh"}));
  EXPECT_EQ(DnsAddresses(reply, q, 1), (std::vector<std::string>{"abcd"}));
  EXPECT_EQ(DnsAddresses(reply.substr(0, reply.size() - 1), q, 16), (std::vector<std::string>{"abcd"}));
  for (size_t n = 0; n < reply.size(); ++n) EXPECT_LE(DnsAddresses(reply.substr(0, n), q, 16).size(), 1u);
}

}  // namespace
}  // namespace sandbar::wire
