// Bodies, upgrades, early and late answers through an intercepted connection.
#include <fcntl.h>

#include <set>

#include "support/egress/intercept_fixture.h"

namespace sandbar::egress::testing {
namespace {

const std::string kHead = "Host: api.test\r\n";

class InterceptBodyTest : public InterceptTest {
 protected:
  void StartRuled() { Start({{"api.test", {Inject({{"x-key", "canary-key"}})}}}); }
  void StartPlain() { Start({{"api.test", {}}}); }
};

TEST_F(InterceptBodyTest, HundredMegabytesBothWays) {
  std::string big(100 << 20, '\0');
  for (size_t i = 0; i < big.size(); i += 4096) big[i] = static_cast<char>(i >> 12);
  Upstream up(&certificate_, [&](Peer& peer, const Message& request) {
    EXPECT_TRUE(request.body == big);
    return peer.Send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(big.size()) + "\r\n\r\n") && peer.Send(big);
  });
  StartRuled();
  Peer guest = Tls(up.port());
  std::thread sending([&] {
    guest.Send("PUT /big HTTP/1.1\r\n" + kHead + "Content-Length: " + std::to_string(big.size()) + "\r\n\r\n");
    guest.Send(big);
  });
  sending.join();
  Message answer = guest.Answer();
  EXPECT_TRUE(answer.ok && answer.body == big);
  auto counters = OnLoop([this] { return state_.counters; });
  EXPECT_GT(counters.egress_bytes, big.size());
  EXPECT_GT(counters.ingress_bytes, big.size());
}

// What a reader does not take, a writer cannot send: the proxy holds next to nothing.
TEST_F(InterceptBodyTest, SlowReaderHoldsTheWriterUp) {
  Fd listener = BoundSocket(SOCK_STREAM);
  StartPlain();
  Peer guest = Plain(PortOf(listener.get()));
  guest.Send("PUT / HTTP/1.1\r\n" + kHead + "Content-Length: 10000000000\r\n\r\n");
  Fd upstream = AcceptOne(listener.get());
  timeval tv{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(guest.fd(), SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
  std::string piece(1 << 20, 'x');
  size_t sent = 0;
  for (ssize_t n = 1; n > 0 && sent < size_t{1} << 30;) {
    n = ::send(guest.fd(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (n > 0) sent += static_cast<size_t>(n);
  }
  EXPECT_LT(sent, size_t{64} << 20) << "kernel buffers only";
}

TEST_F(InterceptBodyTest, ChunksAreFramedAnew) {
  Upstream up(nullptr, [](Peer& peer, const Message&) {
    return peer.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n") &&
           peer.Send("2\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n");
  });
  StartPlain();
  Peer guest = Plain(up.port());
  Message answer = guest.Ask("POST / HTTP/1.1\r\n" + kHead +
                             "Transfer-Encoding: chunked\r\n\r\n01\r\na\r\n2\r\nbc\r\n0\r\nX-T: drop\r\n\r\n");
  EXPECT_EQ(answer.body, "abcde");
  EXPECT_TRUE(answer.head.chunked);
  EXPECT_EQ(up.seen()[0].body, "abc");
  EXPECT_TRUE(up.seen()[0].head.chunked);
  EXPECT_EQ(guest.Ask(Get("api.test")).body, "abcde");
  EXPECT_EQ(up.accepted(), 1);
}

TEST_F(InterceptBodyTest, BadChunkLaterInTheBody) {
  Upstream up(nullptr);
  StartPlain();
  Peer guest = Plain(up.port());
  guest.Send("POST / HTTP/1.1\r\n" + kHead + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
  while (up.accepted() == 0) std::this_thread::yield();
  Message answer = guest.Ask("zz\r\n");
  EXPECT_EQ(answer.head.status, 400);
  EXPECT_FALSE(answer.head.keep_alive);
}

TEST_F(InterceptBodyTest, ResponsesWithoutABody) {
  Upstream up(nullptr, [](Peer& peer, const Message& request) {
    if (request.head.method == "HEAD") return peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n");
    if (request.head.target == "/204") return peer.Send("HTTP/1.1 204 No Content\r\n\r\n");
    if (request.head.target == "/304") return peer.Send("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n");
    return peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  });
  StartPlain();
  Peer guest = Plain(up.port());
  EXPECT_TRUE(guest.Send("HEAD / HTTP/1.1\r\n" + kHead + "\r\n"));
  EXPECT_EQ(guest.Answer(true).head.content_length, 7u);
  EXPECT_EQ(guest.Ask(Get("api.test", "/204")).head.status, 204);
  EXPECT_EQ(guest.Ask(Get("api.test", "/304")).head.status, 304);
  EXPECT_EQ(guest.Ask(Get("api.test", "/0")).head.status, 200);
  EXPECT_EQ(up.accepted(), 1);
}

TEST_F(InterceptBodyTest, ResponseUntilClose) {
  Upstream up(nullptr, [](Peer& peer, const Message&) {
    peer.Send("HTTP/1.1 200 OK\r\n\r\nall of it");
    return false;
  });
  StartPlain();
  Peer guest = Plain(up.port());
  Message answer = guest.Ask(Get("api.test"));
  EXPECT_EQ(answer.body, "all of it");
  EXPECT_TRUE(answer.head.chunked) << "so that the guest can tell the end from a break";
  EXPECT_EQ(guest.Ask(Get("api.test")).body, "all of it");
  Peer old = Plain(up.port());
  old.Send("GET / HTTP/1.0\r\n" + kHead + "\r\n");
  EXPECT_TRUE(old.ReadAll().ends_with("\r\n\r\nall of it"));
}

TEST_F(InterceptBodyTest, BrokenResponseLooksBroken) {
  Upstream up(nullptr, [](Peer& peer, const Message& request) {
    if (request.head.target != "/nothing") peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart");
    return false;
  });
  StartPlain();
  Message answer = Plain(up.port()).Ask(Get("api.test"));
  EXPECT_EQ(answer.head.status, 200);
  EXPECT_FALSE(answer.ok);
  Peer guest = Plain(up.port());
  answer = guest.Ask(Get("api.test", "/nothing"));
  EXPECT_EQ(answer.head.status, 502);
  EXPECT_TRUE(answer.body.contains("upstream_failed")) << answer.body;
  EXPECT_EQ(guest.Ask(Get("api.test", "/nothing")).head.status, 502) << "the connection goes on";
}

TEST_F(InterceptBodyTest, ExpectContinueAndInformational) {
  Upstream up(nullptr, [](Peer& peer, const Message& request) {
    EXPECT_EQ(request.body, "body");
    EXPECT_FALSE(wire::HasField(request.head.fields, "expect"));
    return peer.Send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n") &&
           Upstream::Ok(peer, request);
  });
  StartPlain();
  Peer guest = Plain(up.port());
  guest.Send("POST / HTTP/1.1\r\n" + kHead + "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(guest.ReadBytes(25), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(guest.Ask("body").body, "hello");
  // A refusal comes instead of the invitation.
  guest.Send("POST / HTTP/1.1\r\nHost: evil.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(guest.Answer().head.status, 403);
}

// Answers before it has read the body, which it never does.
TEST_F(InterceptBodyTest, EarlyAnswerWhileTheUploadRuns) {
  Fd listener = BoundSocket(SOCK_STREAM);
  StartPlain();
  Peer guest = Plain(PortOf(listener.get()));
  guest.Send("POST / HTTP/1.1\r\n" + kHead + "Content-Length: 1000000000\r\n\r\npart");
  Peer upstream(AcceptOne(listener.get()));
  EXPECT_TRUE(upstream.ReadBytes(16).starts_with("POST / HTTP/1.1"));
  upstream.Send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
  Message answer = guest.Answer();
  EXPECT_EQ(answer.head.status, 413);
  EXPECT_EQ(answer.body, "no");
  EXPECT_FALSE(answer.head.keep_alive) << "the rest of the upload is in the way";
}

// Streams both ways at once, each side waiting for the other's last piece.
TEST_F(InterceptBodyTest, DuplexExchange) {
  Fd listener = BoundSocket(SOCK_STREAM);
  StartPlain();
  Peer guest = Plain(PortOf(listener.get()));
  guest.Send("POST / HTTP/1.1\r\n" + kHead + "Transfer-Encoding: chunked\r\n\r\n");
  Peer upstream(AcceptOne(listener.get()));
  std::string head;
  while (!head.ends_with("\r\n\r\n")) head += upstream.ReadBytes(1);
  upstream.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  head.clear();
  while (!head.ends_with("\r\n\r\n")) head += guest.ReadBytes(1);
  for (char c : {'a', 'b', 'c'}) {
    guest.Send(std::string("1\r\n") + c + "\r\n");
    EXPECT_EQ(upstream.ReadBytes(6), std::string("1\r\n") + c + "\r\n");
    upstream.Send(std::string("1\r\n") + c + "\r\n");
    EXPECT_EQ(guest.ReadBytes(6), std::string("1\r\n") + c + "\r\n");
  }
  guest.Send("0\r\n\r\n");
  EXPECT_EQ(upstream.ReadBytes(5), "0\r\n\r\n");
  upstream.Send("0\r\n\r\n");
  EXPECT_EQ(guest.ReadBytes(5), "0\r\n\r\n");
}

TEST_F(InterceptBodyTest, SurplusBytesEndTheUpstream) {
  Upstream up(nullptr, [](Peer& peer, const Message& request) {
    EXPECT_EQ(request.head.method, "GET");
    const std::string good = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    return peer.Send(good + "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged");
  });
  StartPlain();
  Peer guest = Plain(up.port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(guest.Ask(Get("api.test")).body, "hello");
}

TEST_F(InterceptBodyTest, KeptUpstreamThatClosedIsDialledAgain) {
  Upstream up(nullptr, [](Peer& peer, const Message& request) {
    Upstream::Ok(peer, request);
    return false;
  });
  StartPlain();
  Peer guest = Plain(up.port());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(guest.Ask(Get("api.test")).body, "hello");
}

bool WebSocketEcho(Peer& peer, const Message& request) {
  EXPECT_EQ(request.head.Get("x-key"), "canary-key");
  EXPECT_EQ(request.head.Get("upgrade"), "websocket");
  EXPECT_EQ(request.head.Get("sec-websocket-key"), "k");
  peer.Send(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Accept: v\r\nX-Echo: canary-key\r\n\r\nfirst");
  for (std::string got = peer.ReadSome(); !got.empty(); got = peer.ReadSome()) {
    if (got.contains("bye")) break;
    peer.Send(got);
  }
  return false;
}

TEST_F(InterceptBodyTest, WebSocketThroughEndedTls) {
  Upstream up(&certificate_, WebSocketEcho);
  StartRuled();
  Peer guest = Tls(up.port());
  guest.Send(
      Get("api.test", "/ws", "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: k\r\n"));
  Message answer = guest.Answer();
  EXPECT_EQ(answer.head.status, 101);
  EXPECT_EQ(answer.head.Get("sec-websocket-accept"), "v");
  EXPECT_EQ(answer.head.Get("x-echo"), "<redacted>");
  EXPECT_EQ(guest.ReadBytes(5), "first");
  for (const std::string& text : {std::string("ping"), std::string(100000, 'x')}) {
    guest.Send(text);
    EXPECT_EQ(guest.ReadBytes(text.size()), text);
  }
  guest.Send("bye");
  EXPECT_EQ(guest.ReadAll(), "");
}

TEST_F(InterceptBodyTest, UnaskedUpgradeIsAnError) {
  Upstream up(nullptr, [](Peer& peer, const Message& request) {
    EXPECT_FALSE(wire::HasField(request.head.fields, "upgrade"));
    return peer.Send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
  });
  StartPlain();
  EXPECT_EQ(Plain(up.port()).Ask(Get("api.test")).head.status, 502);
  // A switch to HTTP/2 would carry requests that nobody checks: it is not even asked for.
  EXPECT_EQ(
      Plain(up.port())
          .Ask(Get("api.test", "/", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n"))
          .head.status,
      502);
}

TEST_F(InterceptBodyTest, LargeHeaders) {
  Upstream up(&certificate_, [](Peer& peer, const Message&) {
    return peer.Send("HTTP/1.1 200 OK\r\nX-Big: " + std::string(50000, 'r') + "\r\nContent-Length: 0\r\n\r\n");
  });
  StartRuled();
  Peer guest = Tls(up.port());
  Message answer = guest.Ask(Get("api.test", "/", "X-Big: " + std::string(50000, 'q') + "\r\n"));
  EXPECT_EQ(answer.head.Get("x-big").size(), 50000u);
  EXPECT_EQ(up.seen()[0].head.Get("x-big").size(), 50000u);
  guest.Send("GET / HTTP/1.1\r\n" + kHead + "X-Big: " + std::string(70000, 'q'));
  EXPECT_EQ(guest.Answer().head.status, 431);
}

TEST_F(InterceptBodyTest, SlowGuestIsDropped) {
  config_.head_timeout = std::chrono::milliseconds(300);
  StartPlain();
  Peer guest = Plain(80, "GET / HT");
  std::atomic<bool> stop = false;
  std::thread dripping([&] {
    while (!stop && SendAll(guest.fd(), "x")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  Message answer = guest.Answer();
  stop = true;
  dripping.join();
  EXPECT_EQ(answer.head.status, 408);
  Peer silent(Redirected(true, "api.test", 443));
  EXPECT_EQ(silent.ReadAll(), "") << "a handshake that never begins";
}

TEST_F(InterceptBodyTest, SlowUpstreamIsGivenUp) {
  config_.head_timeout = std::chrono::milliseconds(300);
  Upstream up(nullptr, [](Peer& peer, const Message&) {
    peer.Send("HTTP/1.1 200 OK\r\nX-");
    while (SendAll(peer.fd(), "x")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return false;
  });
  StartPlain();
  Message answer = Plain(up.port()).Ask(Get("api.test"));
  EXPECT_EQ(answer.head.status, 504);
  EXPECT_TRUE(answer.body.contains("upstream_timeout")) << answer.body;
}

// The head's deadline counts although a later one, for idleness, was in force before.
TEST_F(InterceptBodyTest, SlowSecondHead) {
  config_.head_timeout = std::chrono::milliseconds(300);
  Upstream up(nullptr);
  StartPlain();
  Peer guest = Plain(up.port());
  EXPECT_EQ(guest.Ask(Get("api.test")).head.status, 200);
  EXPECT_EQ(guest.Ask("GET / HT").head.status, 408);
}

TEST_F(InterceptBodyTest, IdleConnectionEnds) {
  config_.idle_timeout = std::chrono::milliseconds(1500);
  Upstream up(nullptr);
  StartPlain();
  Peer guest = Plain(up.port());
  EXPECT_EQ(guest.Ask(Get("api.test")).head.status, 200);
  EXPECT_EQ(guest.ReadAll(), "");
  EXPECT_EQ(guest.error(), 0) << "a proper end, not a reset";
}

TEST_F(InterceptBodyTest, GuestThatLeavesFreesTheUpstream) {
  Fd listener = BoundSocket(SOCK_STREAM);
  StartPlain();
  std::optional<Peer> guest(Plain(PortOf(listener.get())));
  guest->Send(Get("api.test"));
  Peer upstream(AcceptOne(listener.get()));
  EXPECT_TRUE(upstream.Read(wire::HttpKind::kRequest).ok);
  guest.reset();
  EXPECT_EQ(upstream.ReadAll(), "");
  EXPECT_EQ(upstream.error(), 0);
}

}  // namespace
}  // namespace sandbar::egress::testing
