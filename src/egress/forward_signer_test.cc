#include <boost/json/parse.hpp>

#include "support/egress/intercept_fixture.h"

namespace sandbar::egress::testing {
namespace {

namespace json = boost::json;

std::string FromBase64Url(std::string text) {
  for (char& c : text) {
    if (c == '-') c = '+';
    if (c == '_') c = '/';
  }
  size_t padding = (4 - text.size() % 4) % 4;
  text.append(padding, '=');
  std::string out(text.size() / 4 * 3, '\0');
  int n = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                          reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  EXPECT_GE(n, 0);
  out.resize(static_cast<size_t>(n) - padding);
  return out;
}

// Checks the signature with the private PEM's public half; the claims, or an empty object.
json::object Verify(const std::string& token, const std::string& pem) {
  size_t first = token.find('.'), second = token.rfind('.');
  std::string signature = FromBase64Url(token.substr(second + 1));
  std::unique_ptr<BIO, int (*)(BIO*)> in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(PEM_read_bio_PrivateKey(in.get(), nullptr, nullptr, nullptr),
                                                     EVP_PKEY_free);
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get());
  int ok = EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()), signature.size(),
                            reinterpret_cast<const unsigned char*>(token.data()), second);
  if (ok != 1) return {};
  return json::parse(FromBase64Url(token.substr(first + 1, second - first - 1))).as_object();
}

TEST(ForwardSigner, SignsWhatWasAsked) {
  const std::string pem = MakeForwardKey();
  auto signer = MakeForwardSigner(pem, "https://issuer.test");
  ASSERT_TRUE(signer);
  std::string token = (*signer)->Token({"t", "p", "id", "name"}, "https://forward.test/hook");
  json::object claims = Verify(token, pem);
  EXPECT_EQ(claims["iss"], "https://issuer.test");
  EXPECT_EQ(claims["aud"], "https://forward.test/hook");
  EXPECT_EQ(claims["team_id"], "t");
  EXPECT_EQ(claims["project_id"], "p");
  EXPECT_EQ(claims["sandbox_id"], "id");
  EXPECT_EQ(claims["sandbox_name"], "name");
  EXPECT_EQ(claims["exp"].as_int64() - claims["iat"].as_int64(), 300);
  EXPECT_NE(token, (*signer)->Token({"t", "p", "id", "name"}, "https://forward.test/hook")) << "jti is fresh";
  EXPECT_TRUE(Verify(token, MakeForwardKey()).empty()) << "another key does not verify";

  json::object header = json::parse(FromBase64Url(token.substr(0, token.find('.')))).as_object();
  json::value set = json::parse((*signer)->Jwks());
  json::object key = set.at("keys").at(0).as_object();
  EXPECT_EQ(header["alg"], "RS256");
  EXPECT_EQ(header["kid"], key["kid"]);
  EXPECT_EQ(key["kty"], "RSA");
  EXPECT_EQ(FromBase64Url(key["n"].as_string().c_str()).size(), 256u);
  EXPECT_EQ(key["e"], "AQAB");
  EXPECT_FALSE(key.contains("d"));
}

TEST(ForwardSigner, RefusesOtherKeys) {
  EXPECT_FALSE(MakeForwardSigner("", "https://issuer.test"));
  EXPECT_FALSE(MakeForwardSigner("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n", "https://issuer.test"));
}

class ForwardTest : public InterceptTest {
 protected:
  void StartForwarding(const std::string& url) {
    pem_ = MakeForwardKey();
    signer_ = *MakeForwardSigner(pem_, "https://oidc.vercel.com");
    options_.signer = signer_.get();
    Start({{"api.test", {{std::nullopt, ForwardAction{url}}}}});
  }
  std::string pem_;
  std::unique_ptr<ForwardSigner> signer_;
};

TEST_F(ForwardTest, ForwardedRequest) {
  Upstream up(&certificate_);
  const std::string origin = "https://forward.test:" + std::to_string(up.port());
  StartForwarding(origin + "/hook/");
  Peer guest = Tls(8443);
  Message answer = guest.Ask(
      "POST /a/b?c=d HTTP/1.1\r\nHost: api.test:8443\r\nvercel-forwarded-host: forged\r\n"
      "Content-Length: 4\r\n\r\nbody");
  EXPECT_EQ(answer.head.status, 200) << answer.body;
  ASSERT_EQ(up.seen().size(), 1u);
  Message seen = up.seen()[0];
  EXPECT_EQ(seen.head.target, "/hook/a/b?c=d");
  EXPECT_EQ(seen.body, "body");
  EXPECT_EQ(seen.head.Get("host"), "forward.test:" + std::to_string(up.port()));
  EXPECT_EQ(seen.head.Get("vercel-forwarded-host"), "api.test");
  EXPECT_EQ(seen.head.Get("vercel-forwarded-scheme"), "https");
  EXPECT_EQ(seen.head.Get("vercel-forwarded-port"), "8443");
  EXPECT_EQ(seen.head.Get("vercel-forwarded-path"), "/a/b?c=d");
  json::object claims = Verify(std::string(seen.head.Get("vercel-sandbox-oidc-token")), pem_);
  EXPECT_EQ(claims["aud"].as_string(), origin + "/hook");
  EXPECT_EQ(claims["sandbox_id"], "sbx_1");
}

TEST_F(ForwardTest, PlainRequestsAndAddressesToo) {
  Upstream up(nullptr);
  StartForwarding("http://127.0.0.1:" + std::to_string(up.port()));
  EXPECT_EQ(Plain(80).Ask(Get("api.test", "/")).head.status, 200);
  ASSERT_EQ(up.seen().size(), 1u);
  EXPECT_EQ(up.seen()[0].head.target, "/");
  EXPECT_EQ(up.seen()[0].head.Get("vercel-forwarded-scheme"), "http");
}

TEST_F(ForwardTest, TheGuardHoldsForItAsWell) {
  StartForwarding("http://10.0.0.1/");
  Message answer = Tls(443).Ask(Get("api.test"));
  EXPECT_EQ(answer.head.status, 403);
  EXPECT_TRUE(answer.body.contains("egress_denied")) << answer.body;
}

TEST_F(ForwardTest, WithoutASigner) {
  Start({{"api.test", {{std::nullopt, ForwardAction{"https://forward.test/"}}}}});
  Message answer = Tls(443).Ask(Get("api.test"));
  EXPECT_EQ(answer.head.status, 502);
  EXPECT_TRUE(answer.body.contains("forward_unavailable")) << answer.body;
}

}  // namespace
}  // namespace sandbar::egress::testing
