// A machine's resolver: answers what the policy forbids with a reason, relays the rest to the operator's resolver.
// Nothing the guest sent goes upstream as it is: the query is parsed and written anew, with a fresh id from a fresh
// port, and only a reply to exactly that question comes back. Single loop; `state` outlives it; Close() before it dies.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "async/task.h"
#include "base/fd.h"
#include "egress/decide.h"
#include "egress/guarded_connect.h"
#include "egress/state.h"
#include "wire/dns.h"

namespace sandbar::egress {

class DnsRelay {
 public:
  DnsRelay(const asio::any_io_executor& ex, EgressState* state);

  // Serves datagrams until the socket fails or the task is cancelled. Reads no faster than the budgets allow: what is
  // too much waits in the socket's buffer and is dropped there by the kernel.
  Task<> ServeUdp(Fd socket);
  // Serves one connection to the machine's resolver address (length-prefixed queries) until it ends.
  Task<> ServeTcp(Stream* guest);
  asio::awaitable<void> Close() { return group_.Close(); }

 private:
  struct Datagram;
  Task<> TakeToken();
  // The whole answer to one query; empty when the bytes deserve none.
  Task<std::string> Answer(std::string bytes);
  Task<std::string> Forward(wire::DnsQuery query);
  Task<> AnswerDatagram(Datagram datagram);
  // Answers queries that need no upstream: denials, made-up addresses, IPv6.
  std::optional<std::string> AnswerHere(const wire::DnsQuery& query);
  // Answers a query under a domain policy, without asking upstream. Nothing: the operator lets this query go upstream.
  std::optional<std::string> AnswerByName(const CompiledPolicy& policy, const wire::DnsQuery& query);
  std::optional<std::string> AnswerBy(const CompiledPolicy& policy, const wire::DnsQuery& query);
  bool Denies(const CompiledPolicy& policy, const wire::DnsQuery& query) const;
  // Whether the operator lets the query be asked although no domain of the policy allows the name.
  bool OpenForSubnets(const CompiledPolicy& policy, const wire::DnsQuery& query) const;
  std::string Denied(const wire::DnsQuery& query, const Decision& decision);
  void Remember(const wire::DnsQuery& query, const std::string& reply);

  EgressState* state_;
  std::optional<OperatorEndpoint> upstream_;
  double tokens_;
  std::chrono::steady_clock::time_point refilled_;
  size_t outstanding_ = 0;
  Event freed_;
  Fd udp_;
  TaskGroup group_;
};

}  // namespace sandbar::egress
