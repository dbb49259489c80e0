#include "api/terminal_tickets.h"

#include "base/ids.h"
#include "crypto/digest.h"

namespace sandbar::api {

std::string TerminalTickets::Issue(TerminalTicket ticket) {
  std::string text = NewId("sbt_", 32);
  std::string digest = crypto::Sha256(text);
  tickets_[digest] = {Clock::now(), std::move(ticket)};
  order_.push_back(std::move(digest));
  DropOld();
  return text;
}

std::optional<TerminalTicket> TerminalTickets::Redeem(const std::string& text) {
  DropOld();
  auto found = tickets_.extract(crypto::Sha256(text));
  if (found.empty()) return std::nullopt;
  return std::move(found.mapped().ticket);
}

void TerminalTickets::DropOld() {
  while (!order_.empty()) {
    auto it = tickets_.find(order_.front());
    const bool used = it == tickets_.end();
    if (!used && order_.size() <= kMax && Clock::now() - it->second.at < life_) return;
    if (!used) tickets_.erase(it);
    order_.pop_front();
  }
}

}  // namespace sandbar::api
