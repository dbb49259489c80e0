// Floods: many connections that never ask anything, or never go on. Whoever does ask is answered meanwhile.
#include "support/http/server_fixture.h"

namespace sandbar::http {
namespace {

constexpr char kHalf[] = "GET / HTTP/1.1\r\nHost: a\r\n";
constexpr std::chrono::seconds kGuard{20};  // against a hang; what is tested takes a fraction of it

Task<> HalfSend(HttpServerTest* t, int count) {
  for (int i = 0; i < count; ++i) {
    SB_CO_TRY(RawClient * client, co_await t->Dial());
    SB_CO_TRYV(co_await client->Send(kHalf));
  }
  co_return Result<>{};
}

// Where a client would wait for a place behind each of the others, one after the other, this would take a minute.
TEST_F(HttpServerTest, BehindAFloodOfHalfSentRequestsAClientIsAnswered) {
  Run(
      [](HttpServerTest* t) -> Task<> {
        SB_CO_TRYV(co_await HalfSend(t, 450));
        auto ask = t->Ask(Get("/x"));
        SB_CO_TRY(auto answer, co_await WithTimeout(std::move(ask), kGuard));
        EXPECT_EQ(answer.status, 200);
        co_return Result<>{};
      },
      HttpServerOptions{.max_connections = 16, .header_timeout = std::chrono::hours(1)});
}

TEST_F(HttpServerTest, AFloodTakesNoConnectionOfAClientThatIsKnown) {
  Run(
      [](HttpServerTest* t) -> Task<> {
        SB_CO_TRY(RawClient * known, co_await t->Dial());
        SB_CO_TRYV(co_await known->Send(Get("/vouch")));
        SB_CO_TRY(auto first, co_await known->ReadAnswer());
        SB_CO_TRY(RawClient * answered, co_await t->Dial());
        SB_CO_TRYV(co_await answered->Send(Get("/x")));
        SB_CO_TRY(auto second, co_await answered->ReadAnswer());
        // Those that ask nothing, then those that ask once and stay.
        SB_CO_TRYV(co_await HalfSend(t, 100));
        SB_CO_TRYV(co_await answered->Send(Get("/again")));
        SB_CO_TRY(auto again, co_await answered->ReadAnswer());
        EXPECT_EQ(again.status, 200) << "the flood goes before those that have asked something";
        for (int i = 0; i < 100; ++i) {
          SB_CO_TRY(auto answer, co_await t->Ask(Get("/x")));
          EXPECT_EQ(answer.status, 200);
        }
        SB_CO_TRYV(co_await known->Send(Get("/again")));
        SB_CO_TRY(auto last, co_await known->ReadAnswer());
        EXPECT_EQ(last.status, 200);
        co_return Result<>{};
      },
      HttpServerOptions{.max_connections = 16, .header_timeout = std::chrono::hours(1)});
}

TEST_F(HttpServerTest, ConnectionsThatAskedOnceLeaveTimeToNewOnes) {
  Run(
      [](HttpServerTest* t) -> Task<> {
        for (int i = 0; i < 64; ++i) SB_CO_TRYV(co_await t->Ask(Get("/x")));
        SB_CO_TRY(RawClient * slow, co_await t->Dial());
        SB_CO_TRYV(co_await slow->Send("GET /slow HTTP/1.1\r\n"));
        for (int i = 0; i < 64; ++i) SB_CO_TRYV(co_await t->Ask(Get("/x")));
        SB_CO_TRYV(co_await slow->Send("Host: a\r\n\r\n"));
        SB_CO_TRY(auto answer, co_await slow->ReadAnswer());
        EXPECT_EQ(answer.status, 200);
        co_return Result<>{};
      },
      HttpServerOptions{.max_connections = 32, .header_timeout = std::chrono::hours(1)});
}

TEST_F(HttpServerTest, WhilePlacesAreScarceAHeadHasLittleTime) {
  Run(
      [](HttpServerTest* t) -> Task<> {
        SB_CO_TRYV(co_await HalfSend(t, 7));
        for (RawClient& client : t->clients_) {
          auto end = client.ReadToEnd();
          SB_CO_TRY(std::string rest, co_await WithTimeout(std::move(end), kGuard));
          EXPECT_EQ(rest, "");
          // Below three quarters there is time enough.
          if (&client == &t->clients_[1]) break;
        }
        co_return Result<>{};
      },
      HttpServerOptions{.max_connections = 8,
                        .header_timeout = std::chrono::hours(1),
                        .crowded_header_timeout = std::chrono::seconds(1)});
}

}  // namespace
}  // namespace sandbar::http
