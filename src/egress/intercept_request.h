// The request half of interception: every rule about the requests of a guest is here, the one about responses in
// intercept_response.h. DecideRequest and PlanUpstream decide from the head alone what happens to a request: it is
// refused, answered from a rule, or sent on with a head made anew from what was parsed. They are values without I/O,
// for any thread. RequestUpload sends the result. A new rule about request headers goes into PlanUpstream.
//
//   auto decided = DecideRequest(head, {policy.get(), true, "api.example", 443, false});
//   if (!decided) answer(decided.error());            // a typed answer
//   auto out = PlanUpstream(head, *decided, …);       // where to and what to send
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/intercept.h"
#include "egress/intercept_exchange.h"
#include "wire/http1.h"

namespace sandbar::egress {

// An answer that the proxy gives instead of an upstream: a denial, or an error of the client or the upstream. Nothing
// in it comes from a rule's headers.
struct ErrorAnswer {
  int status = 403;
  std::string code = "egress_denied";
  std::string message;
  std::string reason;  // the same without what was asked for; for the record of denials
  std::string host;    // as canonical as it got
  std::string rule;    // the policy's part that decided
  std::string hint;
  bool denied = false;      // by policy: recorded as a denial
  bool close = false;       // the connection cannot be trusted to be in step
  bool too_costly = false;  // RequestContext::match_steps did not suffice; more of them might
};
template <class T>
using OrErrorAnswer = std::expected<T, ErrorAnswer>;

struct RequestContext {
  const CompiledPolicy* policy = nullptr;
  bool tls = false;
  std::string_view sni;  // canonical, of ended TLS
  uint16_t port = 0;
  bool strict = false;
  uint64_t match_steps = kMaxLoopSteps;  // that the matchers of rules may take
};

struct AllowedRequest {
  std::string host;                  // canonical name, or an address in its one text form
  std::optional<IpAddress> address;  // when the Host is one
  std::string path, query;           // normalised, as it is sent; the query with its '?' or empty
  const DomainEntry* entry = nullptr;
  const Rule* rule = nullptr;  // null: passes untouched
  bool websocket = false;      // asks for an upgrade that we carry
};
OrErrorAnswer<AllowedRequest> DecideRequest(const wire::HttpHead& head, const RequestContext& context);

// Where a request goes and what is sent there.
struct OutgoingRequest {
  bool tls = false;
  std::string host;
  uint16_t port = 0;
  std::optional<IpAddress> address;
  bool own_policy = true;  // the machine's CIDRs apply; not for a forwardURL, which its owner chose
  std::string head;
  std::vector<std::string> secrets;  // values that must not come back in a response's head
  std::string Origin() const;        // an upstream connection serves one of these
};
OrErrorAnswer<OutgoingRequest> PlanUpstream(const wire::HttpHead& head, const AllowedRequest& decided,
                                            const RequestContext& context, const InterceptorOptions& options);

// Sends one request to its upstream: the head that PlanUpstream made, then the body as the guest sends it. Single loop;
// lives as long as the exchange.
class RequestUpload {
 public:
  RequestUpload(InterceptExchange* exchange, http::ByteStream* upstream) : exchange_(exchange), upstream_(upstream) {}
  // Ends only when the guest went away or broke the protocol; sets `uploaded` and `guest_failed` of the exchange. The
  // caller waits for the response beside it.
  Task<> Run(const OutgoingRequest* out);

 private:
  Task<> Send(const OutgoingRequest* out);

  InterceptExchange* exchange_;
  http::ByteStream* upstream_;
};

}  // namespace sandbar::egress
