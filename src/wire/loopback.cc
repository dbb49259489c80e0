#include "wire/loopback.h"

#include <arpa/inet.h>

#include <string>

#include "wire/text.h"

namespace sandbar::wire {

bool IsLoopbackHost(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  if (EqualsIgnoreCase(host, "localhost")) return true;
  const std::string text(host);
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) return text.starts_with("127.");
  in6_addr v6{};
  return ::inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace sandbar::wire
