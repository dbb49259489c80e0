// One-use tickets for terminals. A WebSocket of the protocol carries no credential but a ticket in its address, so a
// ticket opens one terminal of one session, once, within 30 seconds. Loop thread; owned by Api.
//
//   std::string ticket = tickets.Issue({scope, session});
//   std::optional<TerminalTicket> opened = tickets.Redeem(ticket);   // nothing: unknown, used or too old
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "sandbox/scope.h"

namespace sandbar::api {

struct TerminalTicket {
  sandbox::Scope scope;  // with the caller that asked for the ticket; the terminal ends with that caller's credential
  std::string session;
  bool first_use = false;  // see Call::first_use
};

class TerminalTickets {
 public:
  static constexpr std::chrono::seconds kLife{30};
  static constexpr size_t kMax = 10'000;  // the oldest go first

  explicit TerminalTickets(std::chrono::milliseconds life = kLife) : life_(life) {}

  std::string Issue(TerminalTicket ticket);
  std::optional<TerminalTicket> Redeem(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Clock::time_point at;
    TerminalTicket ticket;
  };
  void DropOld();

  std::chrono::milliseconds life_;
  // The keys are digests. The time that a look-up takes tells a guesser about a digest, not about a ticket.
  std::map<std::string, Entry> tickets_;
  std::deque<std::string> order_;  // digests, oldest first; some may be used already
};

}  // namespace sandbar::api
