#include "crypto/digest.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>

#include <array>
#include <memory>

#include "base/ids.h"
#include "base/result.h"

namespace sandbar::crypto {

namespace {

constexpr size_t kDigest = 32;
constexpr size_t kSha1 = 20;

unsigned char* Bytes(std::string& s) {
  return reinterpret_cast<unsigned char*>(s.data());
}

}  // namespace

std::string Sha256(std::string_view bytes) {
  std::string out(kDigest, '\0');
  unsigned size = 0;
  SB_CHECK(EVP_Digest(bytes.data(), bytes.size(), Bytes(out), &size, EVP_sha256(), nullptr) == 1 && size == kDigest);
  return out;
}

std::string Sha256Hex(std::string_view bytes) {
  return Hex(Sha256(bytes));
}

std::string Sha1(std::string_view bytes) {
  std::string out(kSha1, '\0');
  unsigned size = 0;
  SB_CHECK(EVP_Digest(bytes.data(), bytes.size(), Bytes(out), &size, EVP_sha1(), nullptr) == 1 && size == kSha1);
  return out;
}

std::string HmacSha256(std::string_view key, std::string_view text) {
  std::string out(kDigest, '\0');
  unsigned size = 0;
  const auto* in = reinterpret_cast<const unsigned char*>(text.data());
  SB_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), in, text.size(), Bytes(out), &size) != nullptr);
  SB_CHECK(size == kDigest);
  return out;
}

std::string Hkdf(std::string_view secret, std::string_view salt, std::string_view info, size_t size) {
  std::unique_ptr<EVP_KDF, void (*)(EVP_KDF*)> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr), EVP_KDF_free);
  std::unique_ptr<EVP_KDF_CTX, void (*)(EVP_KDF_CTX*)> context(EVP_KDF_CTX_new(kdf.get()), EVP_KDF_CTX_free);
  std::string digest = "SHA256", key(secret), salted(salt), purpose(info), out(size, '\0');
  std::array<OSSL_PARAM, 5> params = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), digest.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key.data(), key.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, purpose.data(), purpose.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salted.data(), salted.size()), OSSL_PARAM_construct_end()};
  if (salt.empty()) params[3] = OSSL_PARAM_construct_end();
  const bool derived = context != nullptr && EVP_KDF_derive(context.get(), Bytes(out), out.size(), params.data()) == 1;
  OPENSSL_cleanse(key.data(), key.size());
  SB_CHECK(derived);
  return out;
}

bool SameSecret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace sandbar::crypto
