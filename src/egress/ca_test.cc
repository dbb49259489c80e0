#include "egress/ca.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace sandbar::egress {
namespace {

using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

Certificate Parse(const std::string& pem) {
  std::unique_ptr<BIO, int (*)(BIO*)> in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  return {PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr), X509_free};
}

PolicyRef Ruled(const std::vector<std::string>& patterns) {
  NetworkPolicy policy{.mode = EgressMode::kCustom, .domains = {{"unruled.test", {}}}};
  for (const std::string& pattern : patterns) policy.domains.push_back({pattern, {{std::nullopt, RespondAction{}}}});
  return *Compile(std::move(policy));
}

// X509_V_OK or why `ca` does not vouch for a server of that name.
int Verify(X509* ca, SSL_CTX* leaf, const char* name) {
  std::unique_ptr<X509_STORE, void (*)(X509_STORE*)> store(X509_STORE_new(), X509_STORE_free);
  X509_STORE_add_cert(store.get(), ca);
  std::unique_ptr<X509_STORE_CTX, void (*)(X509_STORE_CTX*)> context(X509_STORE_CTX_new(), X509_STORE_CTX_free);
  X509_STORE_CTX_init(context.get(), store.get(), SSL_CTX_get0_certificate(leaf), nullptr);
  X509_STORE_CTX_set_default(context.get(), "ssl_server");
  X509_VERIFY_PARAM_set1_host(X509_STORE_CTX_get0_param(context.get()), name, 0);
  X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_X509_STRICT);
  X509_verify_cert(context.get());
  return X509_STORE_CTX_get_error(context.get());
}

TEST(MachineCa, TheSeedDecidesTheKey) {
  auto one = *MachineCa::Make(std::string(32, '1'));
  auto again = *MachineCa::Make(std::string(32, '1'));
  auto other = *MachineCa::Make(std::string(32, '2'));
  PolicyRef policy = Ruled({"api.test"});
  Certificate a = Parse(one->CertificateFor(*policy)), b = Parse(again->CertificateFor(*Ruled({"*"})));
  Certificate c = Parse(other->CertificateFor(*policy));
  EXPECT_EQ(EVP_PKEY_eq(X509_get0_pubkey(a.get()), X509_get0_pubkey(b.get())), 1);
  EXPECT_EQ(X509_NAME_cmp(X509_get_subject_name(a.get()), X509_get_subject_name(b.get())), 0);
  EXPECT_EQ(EVP_PKEY_eq(X509_get0_pubkey(a.get()), X509_get0_pubkey(c.get())), 0);
  // A leaf made by one run of the server is trusted by what an earlier run installed.
  EXPECT_EQ(Verify(a.get(), *again->Leaf("api.test"), "api.test"), X509_V_OK);
  EXPECT_NE(Verify(c.get(), *one->Leaf("api.test"), "api.test"), X509_V_OK);
  EXPECT_FALSE(MachineCa::Make("short"));
}

TEST(MachineCa, ConstrainedToRuledDomains) {
  auto ca = *MachineCa::Make(std::string(32, '1'));
  Certificate some = Parse(ca->CertificateFor(*Ruled({"api.test", "*.wild.test", "a.*.inner.test"})));
  for (const char* name : {"api.test", "x.y.wild.test", "a.b.inner.test"})
    EXPECT_EQ(Verify(some.get(), *ca->Leaf(name), name), X509_V_OK) << name;
  for (const char* name : {"unruled.test", "other.test", "notapi.test"})
    EXPECT_EQ(Verify(some.get(), *ca->Leaf(name), name), X509_V_ERR_PERMITTED_VIOLATION) << name;
  Certificate all = Parse(ca->CertificateFor(*Ruled({"*"})));
  EXPECT_EQ(Verify(all.get(), *ca->Leaf("any.example"), "any.example"), X509_V_OK);
  Certificate none = Parse(ca->CertificateFor(*Ruled({})));
  EXPECT_EQ(Verify(none.get(), *ca->Leaf("any.example"), "any.example"), X509_V_ERR_PERMITTED_VIOLATION);
  EXPECT_EQ(Verify(some.get(), *ca->Leaf("api.test"), "other.test"), X509_V_ERR_HOSTNAME_MISMATCH);
  std::string longest = std::string(63, 'a') + "." + std::string(63, 'b') + ".api.test";
  EXPECT_EQ(Verify(some.get(), *ca->Leaf(longest), longest.c_str()), X509_V_OK);
}

TEST(MachineCa, LeavesAreCachedWithABound) {
  auto ca = *MachineCa::Make(std::string(32, '1'));
  SSL_CTX* first = *ca->Leaf("first.test");
  EXPECT_EQ(*ca->Leaf("first.test"), first);
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(ca->Leaf("n" + std::to_string(i) + ".test"));
    ASSERT_EQ(*ca->Leaf("first.test"), first) << "what is used stays";
  }
  EXPECT_EQ(ca->cached(), 256u);
}

}  // namespace
}  // namespace sandbar::egress
