#include "sandbox/vault.h"

#include <openssl/evp.h>

#include <boost/json.hpp>
#include <memory>

#include "base/base64.h"
#include "base/ids.h"
#include "crypto/digest.h"
#include "wire/json_decode.h"

namespace sandbar::sandbox {
namespace {

namespace json = boost::json;

constexpr size_t kKey = 32;
constexpr size_t kNonce = 12;
constexpr size_t kTag = 16;
constexpr size_t kMaxSealed = 16 << 20;

using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

const unsigned char* Bytes(std::string_view s) {
  return reinterpret_cast<const unsigned char*>(s.data());
}
unsigned char* Bytes(std::string& s) {
  return reinterpret_cast<unsigned char*>(s.data());
}

// One spelling only: bits that belong to no byte are not ignored.
Result<std::string> FromBase64(std::string_view text) {
  auto bytes = DecodeBase64(text);
  if (!bytes || EncodeBase64(*bytes) != text) return Fail(Code::kIo, "a sealed text is damaged");
  return *std::move(bytes);
}

}  // namespace

Vault::Vault(std::string_view secret) : secret_(secret), key_(Derive("records at rest")) {
  SB_CHECK(secret.size() >= 32);
}

std::string Vault::Derive(std::string_view use) const {
  return crypto::Hkdf(secret_, "sandbar", use, kKey);
}

std::string Vault::Seal(std::string_view text, std::string_view owner) const {
  SB_CHECK(text.size() < kMaxSealed);
  std::string out(kNonce + text.size() + kTag, '\0');
  FillRandom(out.data(), kNonce);
  unsigned char* body = Bytes(out) + kNonce;
  CipherContext ctx(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  int n = 0;
  int last = 0;
  bool ok = EVP_EncryptInit_ex(ctx.get(), EVP_aes_256_gcm(), nullptr, Bytes(key_), Bytes(out)) == 1 &&
            EVP_EncryptUpdate(ctx.get(), nullptr, &n, Bytes(owner), static_cast<int>(owner.size())) == 1 &&
            EVP_EncryptUpdate(ctx.get(), body, &n, Bytes(text), static_cast<int>(text.size())) == 1 &&
            EVP_EncryptFinal_ex(ctx.get(), body + n, &last) == 1 &&
            EVP_CIPHER_CTX_ctrl(ctx.get(), EVP_CTRL_GCM_GET_TAG, kTag, body + text.size()) == 1;
  SB_CHECK(ok);
  return EncodeBase64(out);
}

Result<std::string> Vault::Open(std::string_view sealed, std::string_view owner) const {
  if (sealed.size() > 2 * kMaxSealed) return Fail(Code::kIo, "a sealed text is damaged");
  SB_TRY(std::string in, FromBase64(sealed));
  if (in.size() < kNonce + kTag) return Fail(Code::kIo, "a sealed text is damaged");
  std::string out(in.size() - kNonce - kTag, '\0');
  unsigned char* body = Bytes(in) + kNonce;
  CipherContext ctx(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  int n = 0;
  int last = 0;
  bool ok = EVP_DecryptInit_ex(ctx.get(), EVP_aes_256_gcm(), nullptr, Bytes(key_), Bytes(in)) == 1 &&
            EVP_DecryptUpdate(ctx.get(), nullptr, &n, Bytes(owner), static_cast<int>(owner.size())) == 1 &&
            EVP_DecryptUpdate(ctx.get(), Bytes(out), &n, body, static_cast<int>(out.size())) == 1 &&
            EVP_CIPHER_CTX_ctrl(ctx.get(), EVP_CTRL_GCM_SET_TAG, kTag, body + out.size()) == 1 &&
            EVP_DecryptFinal_ex(ctx.get(), Bytes(out) + n, &last) == 1;
  if (!ok) return Fail(Code::kIo, "a sealed text does not open: it is damaged, or secrets.key is another one");
  return out;
}

std::map<std::string, std::string> Vault::SealEnv(const std::map<std::string, std::string>& env,
                                                  std::string_view owner) const {
  if (env.empty()) return {};
  json::object text;
  for (const auto& [name, value] : env) text[name] = value;
  return {{"", Seal(json::serialize(text), owner)}};
}

Result<std::map<std::string, std::string>> Vault::OpenEnv(const std::map<std::string, std::string>& kept,
                                                          std::string_view owner) const {
  if (kept.size() != 1 || !kept.begin()->first.empty()) return kept;
  SB_TRY(std::string text, Open(kept.begin()->second, owner));
  return wire::DecodeJson<std::map<std::string, std::string>>(text);
}

}  // namespace sandbar::sandbox
