#include "http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "support/http/server_fixture.h"

namespace sandbar::http {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(HttpServerTest, KeepAlive) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    for (int i = 0; i < 3; ++i) {
      SB_CO_TRYV(co_await c->Send(Get("/hello?a=b")));
      SB_CO_TRY(auto answer, co_await c->ReadAnswer());
      EXPECT_EQ(answer.status, 200);
      EXPECT_EQ(answer.body, "GET /hello a=b");
      EXPECT_EQ(answer.head.Get("content-type"), "application/json");
      EXPECT_NE(answer.head.Get("date"), "");
      EXPECT_TRUE(answer.head.keep_alive);
    }
    SB_CO_TRYV(co_await c->Send(Get("/bye", "Connection: close\r\n")));
    SB_CO_TRY(std::string last, co_await c->ReadToEnd());
    EXPECT_THAT(last, AllOf(HasSubstr("connection: close\r\n"), testing::EndsWith("GET /bye ")));
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    const std::string post = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    SB_CO_TRYV(co_await c->Send(Get("/1") + post + Get("/3")));
    for (std::string expected : {"GET /1 ", "abc", "GET /3 "}) {
      SB_CO_TRY(auto answer, co_await c->ReadAnswer());
      EXPECT_EQ(answer.body, expected);
    }
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, RequestInSingleBytes) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    const std::string bytes =
        "POST /echo HTTP/1.1\r\nHost: a\r\nX-Sent: yes\r\nTransfer-Encoding: "
        "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    for (char byte : bytes) SB_CO_TRYV(co_await c->Send(std::string(1, byte)));
    SB_CO_TRY(auto answer, co_await c->ReadAnswer());
    EXPECT_EQ(answer.body, "abcde");
    EXPECT_EQ(answer.head.Get("x-seen"), "yes");
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, LargeBodiesStreamInPieces) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    const size_t size = 20 << 20;
    SB_CO_TRYV(
        co_await c->Send("POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n"));
    SB_CO_TRYV(co_await c->Send(std::string(size, 'x')));
    SB_CO_TRY(auto answer, co_await c->ReadAnswer());
    EXPECT_EQ(answer.body, std::to_string(size));
    SB_CO_TRYV(co_await c->Send("POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
    for (int i = 0; i < 20; ++i) SB_CO_TRYV(co_await c->Send("100000\r\n" + std::string(1 << 20, 'x') + "\r\n"));
    SB_CO_TRYV(co_await c->Send("0\r\n\r\n"));
    SB_CO_TRY(auto second, co_await c->ReadAnswer());
    EXPECT_EQ(second.body, std::to_string(2 * size));
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, ExpectContinue) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    const std::string more = "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    SB_CO_TRYV(co_await c->Send("POST /echo HTTP/1.1\r\nHost: a\r\n" + more));
    SB_CO_TRY(auto interim, co_await c->ReadAnswer());
    EXPECT_EQ(interim.status, 100);
    SB_CO_TRYV(co_await c->Send("abc"));
    SB_CO_TRY(auto answer, co_await c->ReadAnswer());
    EXPECT_EQ(answer.body, "abc");
    // Not wanted: no interim answer, and no guess about what the client sends next.
    SB_CO_TRYV(co_await c->Send("POST /ignore-body HTTP/1.1\r\nHost: a\r\n" + more));
    SB_CO_TRY(auto refused, co_await c->ReadAnswer());
    EXPECT_EQ(refused.status, 200);
    EXPECT_FALSE(refused.head.keep_alive);
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, HeadAndNoContentHaveNoBody) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    SB_CO_TRYV(co_await c->Send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n"));
    SB_CO_TRY(auto answer, co_await c->ReadAnswer(true));
    EXPECT_EQ(answer.head.content_length, 8U);
    SB_CO_TRYV(co_await c->Send("HEAD /length HTTP/1.1\r\nHost: a\r\n\r\n"));
    SB_CO_TRY(auto streamed, co_await c->ReadAnswer(true));
    EXPECT_EQ(streamed.head.content_length, 6U);
    SB_CO_TRYV(co_await c->Send(Get("/no-content")));
    SB_CO_TRY(auto none, co_await c->ReadAnswer());
    EXPECT_EQ(none.status, 204);
    EXPECT_FALSE(wire::HasField(none.head.fields, "content-length"));
    SB_CO_TRYV(co_await c->Send(Get("/after")));
    SB_CO_TRY(auto after, co_await c->ReadAnswer());
    EXPECT_EQ(after.body, "GET /after ");
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, StreamedPiecesArriveWhenWritten) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    SB_CO_TRYV(co_await c->Send(Get("/stream")));
    SB_CO_TRYV(co_await c->ReadUntil("x-a: b\r\n"));
    SB_CO_TRYV(co_await c->ReadUntil("A\n"));  // B is written only after this
    t->Go();
    SB_CO_TRYV(co_await c->ReadUntil("B\n\r\n0\r\n\r\n"));
    SB_CO_TRYV(co_await c->Send(Get("/after")));
    SB_CO_TRY(auto after, co_await c->ReadAnswer());
    EXPECT_EQ(after.body, "GET /after ");
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, StreamWithLength) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(auto whole, co_await t->Ask(Get("/length")));
    EXPECT_EQ(whole.body, "abcdef");
    auto cut = co_await t->Ask(Get("/length?short"));
    EXPECT_EQ(cut.error().code, Code::kClosed);
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, Http10GetsABodyUntilClose) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    SB_CO_TRYV(co_await c->Send("GET /flood HTTP/1.0\r\n\r\n"));
    SB_CO_TRY(auto answer, co_await c->ReadAnswer());
    EXPECT_FALSE(answer.head.chunked);
    EXPECT_EQ(answer.body.size(), 64U << 20);
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, WritersWaitForSlowReaders) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    SB_CO_TRYV(co_await c->Send(Get("/flood")));
    // Until the handler writes nothing more while others are served.
    for (uint64_t before = 0; before == 0 || t->written_ != before;) {
      before = t->written_;
      SB_CO_TRYV(co_await t->Meanwhile());
    }
    EXPECT_LT(t->written_, 32U << 20);  // what the kernel buffers, not the 64 MiB that the handler wants to write
    SB_CO_TRY(auto answer, co_await c->ReadAnswer());
    EXPECT_EQ(answer.body.size(), 64U << 20);
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, NoticesThatTheClientWent) {
  Run([](HttpServerTest* t) -> Task<> {
    for (bool half : {false, true}) {
      t->handler_saw_.clear();
      const int before = t->handled_;
      SB_CO_TRY(RawClient * c, co_await t->Dial());
      // A pipelined request in front of the end must not hide it.
      SB_CO_TRYV(co_await c->Send(Get("/wait-closed") + Get("/next")));
      SB_CO_TRYV(co_await t->WaitHandled(before + 1));
      SB_CO_TRYV(co_await t->Meanwhile());
      EXPECT_EQ(t->handler_saw_, "");
      if (half) {
        c->HalfClose();
      } else {
        c->Close();
      }
      if (t->handler_saw_.empty()) SB_CO_TRYV(co_await t->noticed_.Wait());
      EXPECT_EQ(t->handler_saw_, "gone");
    }
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, NoticesItBehindAFullBuffer) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    std::string many = Get("/wait-closed");
    while (many.size() < 100000) many += Get("/next");
    SB_CO_TRYV(co_await c->Send(std::move(many)));
    SB_CO_TRYV(co_await t->WaitHandled(1));
    SB_CO_TRYV(co_await t->Meanwhile());
    c->HalfClose();
    if (t->handler_saw_.empty()) SB_CO_TRYV(co_await t->noticed_.Wait());
    EXPECT_EQ(t->handler_saw_, "gone");
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, AWonRaceLeavesTheConnectionIntact) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    for (int i = 0; i < 3; ++i) {
      const int before = t->handled_;
      SB_CO_TRYV(co_await c->Send(Get("/race-closed")));
      SB_CO_TRYV(co_await t->WaitHandled(before + 1));
      SB_CO_TRYV(co_await c->Send(Get("/pipe")));
      SB_CO_TRYV(co_await t->Meanwhile());
      t->Go();
      SB_CO_TRY(auto raced, co_await c->ReadAnswer());
      EXPECT_EQ(raced.body, "raced");
      EXPECT_EQ(t->handler_saw_, "go");
      SB_CO_TRY(auto piped, co_await c->ReadAnswer());
      EXPECT_EQ(piped.body, "GET /pipe ");
    }
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, BadRequestsGetAnAnswerAndTheDoor) {
  Run([](HttpServerTest* t) -> Task<> {
    const std::string bad[] = {
        "GET / HTTP/1.1\r\n\r\n",
        "GET /\nHost: a\n\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        std::string("\x16\x03\x01\x00", 4),
    };
    for (const std::string& bytes : bad) {
      SB_CO_TRY(RawClient * c, co_await t->Dial());
      SB_CO_TRYV(co_await c->Send(bytes));
      SB_CO_TRY(std::string all, co_await c->ReadToEnd());
      EXPECT_THAT(all,
                  AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("connection: close\r\n"), Not(HasSubstr("smuggled"))));
    }
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, BadChunksInABodyAreARequestError) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    SB_CO_TRYV(co_await c->Send(
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n"));
    SB_CO_TRY(std::string all, co_await c->ReadToEnd());
    EXPECT_THAT(all, StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(all, HasSubstr("connection: close\r\n"));
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, HeadOverTheLimit) {
  Run(
      [](HttpServerTest* t) -> Task<> {
        SB_CO_TRY(auto answer, co_await t->Ask(Get("/" + std::string(5000, 'x'))));
        EXPECT_EQ(answer.status, 413);
        co_return Result<>{};
      },
      HttpServerOptions{.max_header_bytes = 4096});
}

TEST_F(HttpServerTest, HandlerErrorsBecomeAnswers) {
  const char* fatal = std::getenv("SANDBAR_FATAL_BUGS");
  const std::string before = fatal == nullptr ? "" : fatal;
  setenv("SANDBAR_FATAL_BUGS", "0", 1);  // the exception is a bug, and this test is about surviving it
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    SB_CO_TRYV(co_await c->Send(Get("/error") + Get("/no-answer") + Get("/throw") + Get("/fine")));
    SB_CO_TRY(auto error, co_await c->ReadAnswer());
    EXPECT_EQ(error.status, 413);
    EXPECT_EQ(error.body, "too much of it");
    SB_CO_TRY(auto silent, co_await c->ReadAnswer());
    EXPECT_EQ(silent.status, 500);
    SB_CO_TRY(auto thrown, co_await c->ReadAnswer());
    EXPECT_EQ(thrown.status, 500);
    EXPECT_EQ(thrown.body, "internal error");  // not what the exception said
    SB_CO_TRY(auto fine, co_await c->ReadAnswer());
    EXPECT_EQ(fine.status, 200);
    co_return Result<>{};
  });
  setenv("SANDBAR_FATAL_BUGS", before.c_str(), 1);
}

TEST_F(HttpServerTest, AnUnfinishedStreamIsCutNotEnded) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    SB_CO_TRYV(co_await c->Send(Get("/unfinished")));
    SB_CO_TRY(std::string all, co_await c->ReadToEnd());
    EXPECT_THAT(all, testing::EndsWith("partial\r\n"));
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, SmallUnreadBodiesAreDrained) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * c, co_await t->Dial());
    const std::string body(100000, 'x');
    SB_CO_TRYV(co_await c->Send("POST /ignore-body HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + body));
    SB_CO_TRYV(co_await c->Send("POST /ignore-body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n" +
                                body + "\r\n0\r\n\r\n" + Get("/next")));
    for (std::string expected : {"ignored", "ignored", "GET /next "}) {
      SB_CO_TRY(auto answer, co_await c->ReadAnswer());
      EXPECT_EQ(answer.body, expected);
      EXPECT_TRUE(answer.head.keep_alive);
    }
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, LargeUnreadBodiesCloseButTheAnswerArrives) {
  Run([](HttpServerTest* t) -> Task<> {
    for (std::string path : {"/ignore-body", "/limited"}) {
      SB_CO_TRY(RawClient * c, co_await t->Dial());
      SB_CO_TRYV(co_await c->Send("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n"));
      // The client does not listen before it has sent everything: a reset would lose the answer.
      SB_CO_TRYV(co_await c->Send(std::string(30000000, 'x')));
      SB_CO_TRY(std::string all, co_await c->ReadToEnd());
      EXPECT_THAT(all, HasSubstr("connection: close\r\n"));
      EXPECT_THAT(all, StartsWith(path == "/limited" ? "HTTP/1.1 413 " : "HTTP/1.1 200 "));
    }
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, SilentAndSlowClientsAreCut) {
  Run(
      [](HttpServerTest* t) -> Task<> {
        SB_CO_TRY(RawClient * silent, co_await t->Dial());
        SB_CO_TRY(RawClient * slow, co_await t->Dial());
        SB_CO_TRY(RawClient * idle, co_await t->Dial());
        SB_CO_TRYV(co_await slow->Send("GET / HTTP/1.1\r\nHos"));
        SB_CO_TRYV(co_await idle->Send(Get("/x")));
        SB_CO_TRY(auto answer, co_await idle->ReadAnswer());
        EXPECT_EQ(answer.status, 200);
        for (RawClient* c : {silent, slow, idle}) {
          SB_CO_TRY(std::string rest, co_await c->ReadToEnd());
          EXPECT_EQ(rest, "");
        }
        co_return Result<>{};
      },
      HttpServerOptions{.header_timeout = std::chrono::seconds(1), .idle_timeout = std::chrono::seconds(1)});
}

TEST_F(HttpServerTest, StalledReadersAreCutWhenAsked) {
  Run(
      [](HttpServerTest* t) -> Task<> {
        SB_CO_TRY(RawClient * c, co_await t->Dial());
        SB_CO_TRYV(co_await c->Send(Get("/flood")));
        while (!t->flood_cut_) SB_CO_TRYV(co_await t->noticed_.Wait());
        SB_CO_TRY(std::string all, co_await c->ReadToEnd());
        EXPECT_LT(all.size(), 64U << 20);
        co_return Result<>{};
      },
      HttpServerOptions{.write_stall_timeout = std::chrono::seconds(1)});
}

TEST_F(HttpServerTest, AnAnswerThatNobodyTakesIsCut) {
  Run(
      [](HttpServerTest* t) -> Task<> {
        SB_CO_TRY(RawClient * c, co_await t->Dial());
        SB_CO_TRYV(co_await c->Send(Get("/whole")));
        if (t->handler_saw_.empty()) SB_CO_TRYV(co_await t->noticed_.Wait());
        EXPECT_EQ(t->handler_saw_, "not taken");
        SB_CO_TRY(std::string all, co_await c->ReadToEnd());
        EXPECT_LT(all.size(), 64U << 20);
        co_return Result<>{};
      },
      HttpServerOptions{.answer_timeout = std::chrono::seconds(1)});
}

TEST_F(HttpServerTest, AtTheLimitTheLongestIdleMakesRoom) {
  Run(
      [](HttpServerTest* t) -> Task<> {
        SB_CO_TRY(RawClient * busy, co_await t->Dial());
        SB_CO_TRYV(co_await busy->Send(Get("/wait-go")));
        SB_CO_TRY(RawClient * idle, co_await t->Dial());
        SB_CO_TRYV(co_await idle->Send(Get("/idle")));
        SB_CO_TRY(auto first, co_await idle->ReadAnswer());
        EXPECT_EQ(first.status, 200);
        SB_CO_TRY(auto third, co_await t->Ask(Get("/third")));
        EXPECT_EQ(third.status, 200);
        SB_CO_TRY(std::string rest, co_await idle->ReadToEnd());
        EXPECT_EQ(rest, "");
        t->Go();
        SB_CO_TRY(auto served, co_await busy->ReadAnswer());
        EXPECT_EQ(served.body, "late");
        co_return Result<>{};
      },
      HttpServerOptions{.max_connections = 2});
}

TEST_F(HttpServerTest, AtTheLimitABodyThatNobodyWantsMakesRoom) {
  Run(
      [](HttpServerTest* t) -> Task<> {
        SB_CO_TRY(RawClient * promised, co_await t->Dial());
        std::string head = "POST /ignore-body HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n";
        SB_CO_TRYV(co_await promised->Send(head));
        SB_CO_TRY(auto first, co_await promised->ReadAnswer());
        EXPECT_EQ(first.status, 200);
        SB_CO_TRY(auto second, co_await t->Ask(Get("/second")));
        EXPECT_EQ(second.status, 200);
        SB_CO_TRY(std::string rest, co_await promised->ReadToEnd());
        EXPECT_EQ(rest, "") << "it was closed for the other, long before its own deadline";
        co_return Result<>{};
      },
      HttpServerOptions{.max_connections = 1, .header_timeout = std::chrono::hours(1)});
}

TEST_F(HttpServerTest, SurvivesRunningOutOfDescriptors) {
  Run([](HttpServerTest* t) -> Task<> {
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    RawClient* c = &t->clients_.emplace_back(t->io_.get_executor());
    c->socket().open(asio::ip::tcp::v4());
    rlimit none = before;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    SB_CO_TRYV(co_await c->Connect(t->server_->port()));
    SB_CO_TRYV(co_await c->Send(Get("/x")));
    const clock_t cpu = clock();
    SB_CO_TRYV(co_await Sleep(std::chrono::milliseconds(400)));
    EXPECT_LT(clock() - cpu, CLOCKS_PER_SEC / 5);  // processor time: waiting, not spinning
    setrlimit(RLIMIT_NOFILE, &before);
    SB_CO_TRY(auto answer, co_await c->ReadAnswer());
    EXPECT_EQ(answer.status, 200);
    co_return Result<>{};
  });
}

TEST_F(HttpServerTest, CloseCancelsHandlers) {
  Run([](HttpServerTest* t) -> Task<> {
    SB_CO_TRY(RawClient * waiting, co_await t->Dial());
    SB_CO_TRYV(co_await waiting->Send(Get("/wait-go")));
    SB_CO_TRY(RawClient * gone, co_await t->Dial());
    SB_CO_TRYV(co_await gone->Send(Get("/wait-closed")));
    SB_CO_TRY(RawClient * flood, co_await t->Dial());
    SB_CO_TRYV(co_await flood->Send(Get("/flood")));
    SB_CO_TRYV(co_await t->WaitHandled(3));
    t->handler_saw_ = "";
    co_await t->server_->Close();
    EXPECT_NE(t->handler_saw_, "");
    EXPECT_NE(t->handler_saw_, "go");
    co_return Result<>{};
  });
}

TEST(ListenHttp, ErrorsSayWhatIsWrong) {
  asio::io_context io(1);
  auto handler = [](HttpExchange*) -> Task<> { co_return Result<>{}; };
  auto on_error = [](const Error&) { return HttpResponse{}; };
  auto listen = [&](const std::string& host, uint16_t port, HttpServerOptions options = {}) {
    return ListenHttp(io.get_executor(), host, port, std::move(options), handler, on_error);
  };
  EXPECT_EQ(listen("nonsense", 0).error().code, Code::kBadRequest);
  EXPECT_THAT(listen("127.0.0.1", 0, {.tls_cert_file = "a"}).error().message, HasSubstr("needs its key"));
  EXPECT_THAT(listen("127.0.0.1", 0, {.tls_cert_file = "/none", .tls_key_file = "/none"}).error().message,
              HasSubstr("/none"));
  asio::ip::tcp::acceptor taken(io, {asio::ip::address_v4::loopback(), 0});
  EXPECT_EQ(listen("localhost", taken.local_endpoint().port()).error().sys_errno, EADDRINUSE);
}

}  // namespace
}  // namespace sandbar::http
