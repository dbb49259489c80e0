// Which header fields of a message belong to one connection, so that no proxy passes them on (RFC 9110, 7.6.1). This is
// the only such table: interception (net/intercept_request) and previews (net/ingress) use it. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "wire/http1.h"

namespace sandbar::wire {

class HttpHops {
 public:
  // Reads the Connection fields of the message once: they can name thousands.
  explicit HttpHops(const std::vector<HttpField>& fields);
  // True for the fixed names (framing too, because each connection has its own), for everything that begins with
  // "proxy-", and for the names in the message's Connection fields.
  bool Has(std::string_view name) const;

 private:
  std::unordered_set<std::string> names_;
};

// The fields of a message without those of its connection, in their order.
std::vector<HttpField> EndToEndFields(const std::vector<HttpField>& fields);

}  // namespace sandbar::wire
