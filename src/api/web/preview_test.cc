#include "api/web/preview.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "support/api/api_fixture.h"

namespace sandbar::api {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Previews, UrlsSayWhatWorks) {
  ApiConfig config;
  config.port = 8787;
  EXPECT_EQ(PreviewUrlsOf(config).before, "http://");
  EXPECT_EQ(PreviewUrlsOf(config).after, ".localhost:8787");
  config.public_url = "https://sandbox.example.org";
  EXPECT_EQ(PreviewUrlsOf(config).after, ".localhost:8787") << "nobody publishes .localhost";
  config.preview_domain = "preview.example";
  EXPECT_EQ(PreviewUrlsOf(config).before, "https://");
  EXPECT_EQ(PreviewUrlsOf(config).after, ".preview.example");
  config.public_url = "";
  config.tls = true;
  config.port = 8443;
  EXPECT_EQ(PreviewUrlsOf(config).before, "https://");
  EXPECT_EQ(PreviewUrlsOf(config).after, ".preview.example:8443");
}

TEST(Previews, TheTokenLeavesTheTarget) {
  struct Case {
    const char *target, *rest, *token;
  };
  for (const Case& c :
       {Case{"/", "/", ""}, Case{"/a?sandbar_token=t", "/a", "t"},
        Case{"/a?x=1&sandbar_token=t&y=2", "/a?x=1&y=2", "t"}, Case{"/a?sandbar_tokens=t", "/a?sandbar_tokens=t", ""},
        Case{"/a?sandbar_token", "/a", ""}, Case{"/a?q=a=b&&c", "/a?q=a=b&&c", ""}}) {
    std::string token;
    EXPECT_EQ(TakeToken(c.target, &token), c.rest) << c.target;
    EXPECT_EQ(token, c.token) << c.target;
  }
}

class PreviewTest : public ApiFixture {
 protected:
  static constexpr char kHost[] = "Host: sb-abc.localhost:1\r\n";

  void SetUp() override {
    Start();
    OnLoop([&] {
      domain_.sandbox.routes = {{3000, "sb-abc", ""}};
      return 0;
    });
  }
  // The guest's server: answers its first connection with `answer`.
  void GuestSays(const std::string& answer) {
    OnLoop([&] {
      domain_.dial = [this, answer] {
        int pair[2];
        SB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
        SB_CHECK(::send(pair[1], answer.data(), answer.size(), 0) == static_cast<ssize_t>(answer.size()));
        guest_ = Fd(pair[1]);
        return Fd(pair[0]);
      };
      return 0;
    });
  }
  // What the guest was asked.
  std::string Seen() {
    std::string seen(64 << 10, '\0');
    ssize_t n = ::recv(guest_.get(), seen.data(), seen.size(), MSG_DONTWAIT);
    seen.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return seen;
  }
  Fd guest_;
};

TEST_F(PreviewTest, GoesToTheGuestWithoutAToken) {
  GuestSays("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_EQ(Ask("GET", "/v2/sandboxes", "", kHost).body, "hi");
  std::string seen = Seen();
  EXPECT_THAT(seen, AllOf(HasSubstr("GET /v2/sandboxes HTTP/1.1\r\nhost: sb-abc.localhost:1\r\n"),
                          Not(HasSubstr("Authorization")), HasSubstr("x-forwarded-for: 127.0.0.1\r\n")));
  EXPECT_EQ(OnLoop([&] { return domain_.number; }), 3000);
  // What passed is counted where the domain said.
  EXPECT_EQ(OnLoop([&] { return domain_.traffic->written; }), seen.size());
  EXPECT_EQ(OnLoop([&] { return domain_.traffic->read; }),
            std::string("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").size());
}

TEST_F(PreviewTest, ErrorsInTheProtocolsWords) {
  struct Case {
    Code code;
    int status;
    const char* name;
  };
  for (const Case& c :
       {Case{Code::kStopped, 410, "SANDBOX_STOPPED"}, Case{Code::kStopping, 410, "SANDBOX_STOPPED"},
        Case{Code::kUnavailable, 502, "SANDBOX_NOT_LISTENING"}, Case{Code::kTimeout, 504, "SANDBOX_TIMEOUT"}}) {
    OnLoop([&] {
      domain_.fail = Error{c.code, "x"};
      return 0;
    });
    Answer answer = Ask("GET", "/", "", kHost);
    EXPECT_EQ(answer.status, c.status);
    EXPECT_EQ(answer.Code(), c.name);
  }
  EXPECT_THAT(Ask("GET", "/", "", std::string(kHost) + "Accept: text/html\r\n").body, HasSubstr("<h1>SANDBOX_TIMEOUT"));
  EXPECT_EQ(Ask("GET", "/", "", "Host: sb-other.localhost\r\n").Code(), "SANDBOX_NOT_FOUND");
  OnLoop([&] {
    domain_.fail.reset();
    return 0;
  });
  GuestSays("garbage\r\n\r\n");
  EXPECT_EQ(Ask("GET", "/", "", kHost).Code(), "SANDBOX_BAD_ANSWER");
}

TEST_F(PreviewTest, AProtectedRouteWantsItsToken) {
  boost::json::object made = Ask("POST", "/x/v1/sandboxes/demo/routes/3000/token").Json();
  const std::string token(made.at("token").as_string());
  EXPECT_TRUE(made.at("protected").as_bool());
  GuestSays("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_EQ(Ask("GET", "/", "", kHost).status, 401);
  EXPECT_EQ(Ask("GET", "/?sandbar_token=wrong", "", kHost).status, 401);
  Answer opened = Ask("GET", "//evil.example/?sandbar_token=" + token, "", kHost);
  EXPECT_EQ(opened.status, 303);
  EXPECT_EQ(opened.Get("location"), "http://sb-abc.localhost:1//evil.example/");
  EXPECT_THAT(opened.Get("set-cookie"), AllOf(HasSubstr("HttpOnly"), Not(HasSubstr("Domain"))));
  EXPECT_EQ(Ask("GET", "/", "", std::string(kHost) + "Cookie: a=1; sandbar_preview_token=" + token + "\r\n").body,
            "hi");
  EXPECT_THAT(Seen(), AllOf(HasSubstr("Cookie: a=1\r\n"), Not(HasSubstr(token))));
  EXPECT_EQ(Ask("DELETE", "/x/v1/sandboxes/demo/routes/3000/token").status, 200);
  EXPECT_EQ(Ask("GET", "/", "", kHost).body, "hi");
  EXPECT_EQ(Ask("POST", "/x/v1/sandboxes/demo/routes/4000/token").status, 404);
  EXPECT_EQ(Ask("POST", "/x/v1/sandboxes/demo/routes/x/token").status, 400);
}

TEST_F(PreviewTest, NoSpellingOfACredentialReachesTheGuest) {
  constexpr char kOwn[] = "a-token-that-an-operator-chose";
  const std::string made = "sbr_0123456789012345678901234567890123456789";
  OnLoop([&] {
    domain_.AddKey(kOwn);
    return 0;
  });
  const int64_t now = NowMs();
  const std::string jwt = MintJwt(kTestKey, {"t", "p", now - 3'600'000}, now - 7'200'000);
  const std::string route(Ask("POST", "/x/v1/sandboxes/demo/routes/3000/token").Json().at("token").as_string());
  const std::string open = std::string(kHost) + "Authorization: none\r\nX-Sandbar-Preview-Token: " + route + "\r\n";
  for (const std::string& secret : {std::string(kOwn), made, jwt, route}) {
    for (const std::string& line :
         {"Authorization: Bearer " + secret, "authorization: bEaReR   " + secret, "Authorization: bearer \t " + secret,
          "Authorization: Token token=\"" + secret + "\"", "Authorization: " + secret,
          "Authorization: Basic " + Base64Url("user:" + secret),
          "Authorization: other\r\nAuthorization: Bearer " + secret, "Proxy-Authorization: Bearer " + secret,
          "X-Api-Key: " + secret, "X_Sandbar_Preview_Token: " + secret,
          "Cookie: a=1; sandbar_token=" + secret + "; b=2", "Cookie: " + secret,
          "Cookie: x=%" + std::string("2") + "0" + secret,
          "Referer: http://sb-abc.localhost:1/?sandbar_token=" + secret, "X-Forwarded-For: " + secret,
          "Sec-WebSocket-Protocol: chat, bearer." + secret + ", base64url.bearer.authorization.k8s.io." +
              Base64Url(secret),
          "Authorization: Bearer\t" + secret, secret + ": 1"}) {
      GuestSays("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
      EXPECT_EQ(Ask("GET", "/", "", open + line + "\r\nX-Other: stays\r\n").body, "hi") << line;
      std::string seen = Seen();
      EXPECT_THAT(seen, AllOf(Not(HasSubstr(secret)), Not(HasSubstr(Base64Url(secret))), HasSubstr("X-Other: stays")))
          << line;
    }
    for (const std::string& query : {"/?a=1&token=" + secret + "&b=2", "/?a=1&" + secret + "&b=2",
                                     "/?a=1&sandbar%5Ftoken=%" + std::string("2") + "0" + secret + "&b=2"}) {
      GuestSays("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
      EXPECT_EQ(Ask("GET", query, "", open).body, "hi") << query;
      EXPECT_THAT(Seen(), HasSubstr("GET /?a=1&b=2 HTTP/1.1\r\n")) << query;
    }
  }
  // What is not ours passes as it is.
  GuestSays("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
  const std::string theirs =
      "Cookie: a=" + std::string(40, 'a') + "; b=2\r\nX-Api-Key: " + std::string(30, 'k') + "\r\n";
  EXPECT_EQ(Ask("GET", "/?q=" + std::string(64, 'q'), "", open + theirs).body, "hi");
  EXPECT_THAT(Seen(), AllOf(HasSubstr("/?q=qqqq"), HasSubstr("Cookie: a=aaaa"), HasSubstr("; b=2\r\n"),
                            HasSubstr("X-Api-Key: kkkk"), HasSubstr("Authorization: none")));
}

TEST_F(PreviewTest, APortThatIsNoneIsRefused) {
  const std::string token(Ask("POST", "/x/v1/sandboxes/demo/routes/3000/token").Json().at("token").as_string());
  for (const char* port : {"", "0", "65536", "1x", "x", "-1", "+80", " 80", "80@evil.example", "99999999999"}) {
    Answer answer = Ask("GET", "/?sandbar_token=" + token, "", "Host: sb-abc.localhost:" + std::string(port) + "\r\n");
    EXPECT_EQ(answer.status, 400) << port;
    EXPECT_EQ(answer.Get("location"), "") << port;
  }
  for (const char* port : {"1", "8787", "65535"}) {
    Answer answer = Ask("GET", "/?sandbar_token=" + token, "", "Host: sb-abc.localhost:" + std::string(port) + "\r\n");
    EXPECT_EQ(answer.Get("location"), "http://sb-abc.localhost:" + std::string(port) + "/");
  }
}

}  // namespace
}  // namespace sandbar::api
