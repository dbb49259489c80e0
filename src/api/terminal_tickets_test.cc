#include "api/terminal_tickets.h"

#include <gtest/gtest.h>

namespace sandbar::api {
namespace {

TEST(TerminalTickets, OpenOneTerminalOnce) {
  TerminalTickets tickets;
  TerminalTicket ticket;
  ticket.session = "sbx_1";
  const std::string text = tickets.Issue(ticket);
  const std::string other = tickets.Issue(ticket);
  EXPECT_NE(text, other);
  EXPECT_FALSE(tickets.Redeem(""));
  EXPECT_FALSE(tickets.Redeem(text + "x"));
  auto opened = tickets.Redeem(text);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->session, "sbx_1");
  EXPECT_FALSE(tickets.Redeem(text));
  EXPECT_TRUE(tickets.Redeem(other));
}

TEST(TerminalTickets, AnOldOneOpensNothing) {
  TerminalTickets tickets(std::chrono::milliseconds(0));
  EXPECT_FALSE(tickets.Redeem(tickets.Issue({})));
}

TEST(TerminalTickets, TheOldestGoWhenThereAreTooMany) {
  TerminalTickets tickets;
  const std::string first = tickets.Issue({});
  const std::string second = tickets.Issue({});
  for (size_t i = 1; i < TerminalTickets::kMax; ++i) tickets.Issue({});
  EXPECT_FALSE(tickets.Redeem(first));
  EXPECT_TRUE(tickets.Redeem(second));
}

}  // namespace
}  // namespace sandbar::api
