#include <fmt/format.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <array>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "base/base64.h"
#include "base/ids.h"
#include "crypto/digest.h"
#include "crypto/jwt.h"
#include "egress/intercept.h"
#include "http/openssl_owned.h"

namespace sandbar::egress {

namespace {

using Key = http::Owned<EVP_PKEY, EVP_PKEY_free>;
namespace json = boost::json;

constexpr int kMinBits = 2048;
constexpr int64_t kLife = 300;  // seconds

std::string Number(EVP_PKEY* key, const char* name) {
  BIGNUM* raw = nullptr;
  EVP_PKEY_get_bn_param(key, name, &raw);
  http::Owned<BIGNUM, BN_free> number(raw);
  SB_CHECK(number != nullptr);
  std::string out(static_cast<size_t>(BN_num_bytes(number.get())), '\0');
  BN_bn2bin(number.get(), reinterpret_cast<unsigned char*>(out.data()));
  return out;
}

class RsaSigner final : public ForwardSigner {
 public:
  RsaSigner(Key key, std::string issuer) : key_(std::move(key)), issuer_(std::move(issuer)) {
    n_ = EncodeBase64Url(Number(key_.get(), OSSL_PKEY_PARAM_RSA_N));
    e_ = EncodeBase64Url(Number(key_.get(), OSSL_PKEY_PARAM_RSA_E));
    // RFC 7638: the thumbprint of the public key names it.
    std::string canonical = fmt::format(R"({{"e":"{}","kty":"RSA","n":"{}"}})", e_, n_);
    kid_ = EncodeBase64Url(crypto::Sha256(canonical));
  }

  std::string Token(const ForwardIdentity& who, const std::string& audience) override {
    const int64_t now = NowMs() / 1000;
    json::object head{{"alg", "RS256"}, {"typ", "JWT"}, {"kid", kid_}};
    json::object claims{{"iss", issuer_},
                        {"aud", audience},
                        {"sub", fmt::format("team:{}:project:{}:sandbox:{}", who.team, who.project, who.sandbox_id)},
                        {"iat", now},
                        {"nbf", now},
                        {"exp", now + kLife},
                        {"jti", NewId("")},
                        {"team_id", who.team},
                        {"project_id", who.project},
                        {"sandbox_id", who.sandbox_id},
                        {"sandbox_name", who.sandbox_name}};
    auto sign = [this](std::string_view text) { return Sign(text); };
    return crypto::SignJwt(json::serialize(head), json::serialize(claims), sign);
  }
  std::string Jwks() const override {
    json::object key{{"kty", "RSA"}, {"use", "sig"}, {"alg", "RS256"}, {"kid", kid_}, {"n", n_}, {"e", e_}};
    json::object set{{"keys", json::array{std::move(key)}}};
    return json::serialize(set);
  }
  std::string issuer() const override { return issuer_; }

 private:
  std::string Sign(std::string_view text) const {
    http::Owned<EVP_MD_CTX, EVP_MD_CTX_free> context(EVP_MD_CTX_new());
    SB_CHECK(EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key_.get()) == 1);
    size_t n = static_cast<size_t>(EVP_PKEY_get_size(key_.get()));
    std::string out(n, '\0');
    int ok = EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &n,
                            reinterpret_cast<const unsigned char*>(text.data()), text.size());
    SB_CHECK(ok == 1);
    out.resize(n);
    return out;
  }

  Key key_;
  std::string issuer_, n_, e_, kid_;
};

}  // namespace

Result<std::unique_ptr<ForwardSigner>> MakeForwardSigner(const std::string& pem, std::string issuer) {
  http::Owned<BIO, BIO_free> in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Key key(PEM_read_bio_PrivateKey(in.get(), nullptr, nullptr, nullptr));
  if (!key || EVP_PKEY_is_a(key.get(), "RSA") != 1 || EVP_PKEY_get_bits(key.get()) < kMinBits)
    return Fail(Code::kBadRequest, "the forward key is not an RSA private key of at least 2048 bits");
  return std::make_unique<RsaSigner>(std::move(key), std::move(issuer));
}

std::string MakeForwardKey() {
  Key key(EVP_RSA_gen(kMinBits));
  http::Owned<BIO, BIO_free> out(BIO_new(BIO_s_mem()));
  int ok = key ? PEM_write_bio_PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) : 0;
  SB_CHECK(ok == 1);
  char* data = nullptr;
  const long n = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<size_t>(n)};
}

}  // namespace sandbar::egress
