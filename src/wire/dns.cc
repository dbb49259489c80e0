#include "wire/dns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace sandbar::wire {

namespace {

constexpr size_t kHeader = 12;
constexpr size_t kMaxName = 255;
constexpr size_t kMaxLabel = 63;
constexpr size_t kPointer = 0xc0;
constexpr uint16_t kTypeOpt = 41;
constexpr uint16_t kOptionEde = 15;
constexpr uint16_t kFlagQr = 0x8000, kFlagTc = 0x0200, kFlagRd = 0x0100, kFlagRa = 0x0080, kFlagCd = 0x0010;
constexpr uint16_t kOpcodeMask = 0x7800;
constexpr uint16_t kEdnsDo = 0x8000;

uint8_t Byte(std::string_view in, size_t at) {
  return static_cast<uint8_t>(in[at]);
}
uint16_t U16(std::string_view in, size_t at) {
  return static_cast<uint16_t>(Byte(in, at) << 8 | Byte(in, at + 1));
}

void Put16(std::string& out, uint16_t v) {
  out.push_back(static_cast<char>(v >> 8));
  out.push_back(static_cast<char>(v & 0xff));
}

// Length of the name at `at` including its final zero. A question has nothing before it that a compression pointer
// could name, so pointers are refused rather than followed: no loops to guard against.
Result<size_t> NameLength(std::string_view in, size_t at) {
  size_t pos = at;
  while (pos < in.size()) {
    size_t label = Byte(in, pos);
    if (label > kMaxLabel) return Fail(Code::kProtocol, "dns: bad label");
    pos += 1 + label;
    if (pos - at > kMaxName) return Fail(Code::kProtocol, "dns: name too long");
    if (label == 0) return pos - at;
  }
  return Fail(Code::kProtocol, "dns: name cut short");
}

// Where the record after the name at `at` goes on. A compression pointer ends a name; it is not followed.
std::optional<size_t> SkipName(std::string_view in, size_t at) {
  while (at < in.size()) {
    size_t label = Byte(in, at);
    if (label == 0) return at + 1;
    if (label > kMaxLabel) return label >= kPointer && in.size() - at >= 2 ? std::optional(at + 2) : std::nullopt;
    at += 1 + label;
  }
  return std::nullopt;
}

char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool SameName(std::string_view a, std::string_view b) {
  // Length bytes are below 64 and so never letters: comparing all bytes case-blind compares labels.
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return Lower(x) == Lower(y); });
}

// The additional section of a query: nothing, or one OPT record (other records, such as TSIG, make no sense here).
Result<void> ParseOpt(std::string_view in, size_t at, DnsQuery& query) {
  constexpr size_t kOptFixed = 11;  // root name, type, class, ttl, rdlength
  if (in.size() - at < kOptFixed || in[at] != 0 || U16(in, at + 1) != kTypeOpt)
    return Fail(Code::kProtocol, "dns: unexpected additional record");
  query.edns = true;
  query.udp_size = std::clamp<uint16_t>(U16(in, at + 3), kDnsPlainUdp, kDnsEdnsUdp);
  query.dnssec_ok = (U16(in, at + 7) & kEdnsDo) != 0;
  if (in.size() - at - kOptFixed != U16(in, at + 9)) return Fail(Code::kProtocol, "dns: bad OPT length");
  return {};
}

std::string Head(const DnsQuery& query, uint16_t flags, uint16_t additional, uint16_t answers = 0) {
  std::string out;
  Put16(out, query.id);
  if (query.recursion_desired) flags |= kFlagRd;
  if (query.checking_disabled) flags |= kFlagCd;
  Put16(out, flags);
  Put16(out, 1);
  Put16(out, answers);
  Put16(out, 0);
  Put16(out, additional);
  out += query.name;
  Put16(out, query.type);
  Put16(out, query.klass);
  return out;
}

void PutOpt(std::string& out, bool dnssec_ok, std::string_view options) {
  out.push_back(0);
  Put16(out, kTypeOpt);
  Put16(out, kDnsEdnsUdp);
  Put16(out, 0);  // extended rcode and version
  Put16(out, dnssec_ok ? kEdnsDo : 0);
  Put16(out, static_cast<uint16_t>(options.size()));
  out += options;
}

}  // namespace

Result<DnsQuery> ParseDnsQuery(std::string_view in) {
  if (in.size() < kHeader || in.size() > kDnsMaxQuery) return Fail(Code::kProtocol, "dns: bad length");
  uint16_t flags = U16(in, 2);
  if ((flags & kFlagQr) != 0) return Fail(Code::kProtocol, "dns: not a query");
  if ((flags & kOpcodeMask) != 0) return Fail(Code::kProtocol, "dns: opcode not supported");
  if (U16(in, 4) != 1 || U16(in, 6) != 0 || U16(in, 8) != 0 || U16(in, 10) > 1)
    return Fail(Code::kProtocol, "dns: unexpected sections");
  DnsQuery query;
  query.id = U16(in, 0);
  query.recursion_desired = (flags & kFlagRd) != 0;
  query.checking_disabled = (flags & kFlagCd) != 0;
  SB_TRY(size_t name, NameLength(in, kHeader));
  size_t at = kHeader + name;
  if (in.size() - at < 4) return Fail(Code::kProtocol, "dns: question cut short");
  query.name.assign(in.substr(kHeader, name));
  query.type = U16(in, at);
  query.klass = U16(in, at + 2);
  at += 4;
  if (U16(in, 10) == 1) {
    SB_TRYV(ParseOpt(in, at, query));
  } else if (at != in.size()) {
    return Fail(Code::kProtocol, "dns: bytes after the question");
  }
  return query;
}

Result<DnsReplyHead> ParseDnsReply(std::string_view in, const DnsQuery& query) {
  size_t question = query.name.size() + 4;
  if (in.size() < kHeader + question) return Fail(Code::kProtocol, "dns: reply too short");
  uint16_t flags = U16(in, 2);
  if (U16(in, 0) != query.id || (flags & kFlagQr) == 0 || (flags & kOpcodeMask) != 0 || U16(in, 4) != 1)
    return Fail(Code::kProtocol, "dns: not a reply to this query");
  size_t at = kHeader + query.name.size();
  if (!SameName(in.substr(kHeader, query.name.size()), query.name) || U16(in, at) != query.type ||
      U16(in, at + 2) != query.klass)
    return Fail(Code::kProtocol, "dns: reply to another question");
  return DnsReplyHead{
      .id = query.id,
      .truncated = (flags & kFlagTc) != 0,
      .rcode = static_cast<DnsRcode>(flags & 0xf),
      .question_end = kHeader + question,
  };
}

std::vector<std::string> DnsAddresses(std::string_view in, const DnsQuery& query, size_t limit) {
  constexpr size_t kFixed = 10;  // type, class, ttl, rdlength
  const size_t length = query.type == kDnsTypeA ? 4 : 16;
  std::vector<std::string> out;
  size_t at = kHeader + query.name.size() + 4;
  if (in.size() < at) return out;
  for (size_t left = U16(in, 6); left != 0 && out.size() < limit; --left) {
    auto name = SkipName(in, at);
    if (!name || in.size() - *name < kFixed) break;
    at = *name + kFixed;
    size_t size = U16(in, at - 2);
    if (in.size() - at < size) break;
    bool wanted = U16(in, *name) == query.type && U16(in, *name + 2) == query.klass && size == length;
    if (wanted) out.emplace_back(in.substr(at, size));
    at += size;
  }
  return out;
}

std::string EncodeDnsQuery(const DnsQuery& query) {
  std::string out = Head(query, 0, query.edns ? 1 : 0);
  if (query.edns) PutOpt(out, query.dnssec_ok, {});
  return out;
}

std::string EncodeDnsError(const DnsQuery& query, DnsRcode rcode, uint16_t ede, std::string_view text) {
  auto flags = static_cast<uint16_t>(kFlagQr | kFlagRa | static_cast<uint16_t>(rcode));
  std::string out = Head(query, flags, query.edns ? 1 : 0);
  if (!query.edns) return out;
  std::string option;
  if (ede != 0) {
    text = text.substr(0, kDnsMaxExtraText);
    Put16(option, kOptionEde);
    Put16(option, static_cast<uint16_t>(2 + text.size()));
    Put16(option, ede);
    option += text;
  }
  PutOpt(out, query.dnssec_ok, option);
  return out;
}

std::string EncodeDnsAddress(const DnsQuery& query, std::string_view v4, uint32_t ttl) {
  std::string out = Head(query, kFlagQr | kFlagRa, query.edns ? 1 : 0, 1);
  Put16(out, static_cast<uint16_t>(kPointer << 8 | kHeader));  // the question's name
  Put16(out, kDnsTypeA);
  Put16(out, query.klass);
  Put16(out, static_cast<uint16_t>(ttl >> 16));
  Put16(out, static_cast<uint16_t>(ttl & 0xffff));
  Put16(out, static_cast<uint16_t>(v4.size()));
  out += v4;
  if (query.edns) PutOpt(out, query.dnssec_ok, {});
  return out;
}

std::string EncodeDnsTruncated(const DnsQuery& query) {
  std::string out = Head(query, kFlagQr | kFlagRa | kFlagTc, query.edns ? 1 : 0);
  if (query.edns) PutOpt(out, query.dnssec_ok, {});
  return out;
}

std::optional<std::string> EncodeDnsFormErr(std::string_view in) {
  // A reply (QR set) must never be answered: two relays could then answer each other for ever.
  if (in.size() < kHeader || (U16(in, 2) & kFlagQr) != 0) return std::nullopt;
  bool known_opcode = (U16(in, 2) & kOpcodeMask) == 0;
  auto rcode = static_cast<uint16_t>(known_opcode ? DnsRcode::kFormErr : DnsRcode::kNotImp);
  std::string out;
  Put16(out, U16(in, 0));
  Put16(out, static_cast<uint16_t>(kFlagQr | (U16(in, 2) & (kOpcodeMask | kFlagRd)) | rcode));
  out.append(8, '\0');
  return out;
}

std::string DnsNameText(std::string_view wire_name) {
  std::string out;
  size_t pos = 0;
  while (pos < wire_name.size()) {
    size_t label = Byte(wire_name, pos++);
    if (label == 0 || label > wire_name.size() - pos) break;
    if (!out.empty()) out.push_back('.');
    for (char c : wire_name.substr(pos, label)) {
      bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
      if (plain) {
        out.push_back(c);
      } else {
        out += fmt::format("\\{:03}", static_cast<uint8_t>(c));
      }
    }
    pos += label;
  }
  return out.empty() ? "." : out;
}

Result<std::string> DnsNameFromText(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  std::string out;
  while (!text.empty()) {
    size_t dot = text.find('.');
    std::string_view label = text.substr(0, dot);
    bool last = dot == std::string_view::npos;
    if (label.empty() || label.size() > kMaxLabel || (!last && dot + 1 == text.size()))
      return Fail(Code::kBadRequest, "bad domain name");
    out.push_back(static_cast<char>(label.size()));
    out += label;
    text.remove_prefix(last ? text.size() : dot + 1);
  }
  out.push_back('\0');
  if (out.size() > kMaxName) return Fail(Code::kBadRequest, "domain name too long");
  return out;
}

}  // namespace sandbar::wire
