// The response half of interception: every rule about what a guest gets back is here, the one about requests in
// intercept_request.h. ResponseHead rewrites the head of an upstream's response (a new rule about response headers goes
// there), SerializeErrorAnswer and RuleAnswer make answers without an upstream; these are values without I/O, for any
// thread. ResponseDownload reads the response and sends it to the guest.
#pragma once

#include <string>
#include <vector>

#include "egress/intercept_exchange.h"
#include "egress/intercept_request.h"
#include "http/message_reader.h"
#include "wire/http1.h"

namespace sandbar::egress {

enum class BodyFraming { kNone, kLength, kChunked, kUntilClose };
// The head of an upstream's response as the guest gets it: without the fields of the upstream's connection, and with
// every secret that a rule added to the request replaced.
std::string ResponseHead(const wire::HttpHead& response, BodyFraming framing, bool keep_alive,
                         const std::vector<std::string>& secrets);
// Whole answers of our own. `body` is false for the answer to a HEAD.
std::string SerializeErrorAnswer(const ErrorAnswer& problem, bool keep_alive, bool body);
std::string RuleAnswer(const RespondAction& action, bool keep_alive, bool body);

// Reads the response of one exchange and sends it to the guest. Single loop; lives as long as the exchange.
class ResponseDownload {
 public:
  // `response` reads from the upstream.
  ResponseDownload(InterceptExchange* exchange, http::MessageReader* response)
      : exchange_(exchange), reader_(response) {}
  // Until the response's end, or the end of its head after a 101. Sets `answered` and `keep` of the exchange.
  Task<> Run(const OutgoingRequest* out);

 private:
  Task<> ReadFinalHead();
  Task<> SendBody(BodyFraming framing);

  InterceptExchange* exchange_;
  http::MessageReader* reader_;
};

}  // namespace sandbar::egress
