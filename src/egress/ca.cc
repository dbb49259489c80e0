#include "egress/ca.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "crypto/digest.h"
#include "http/openssl_owned.h"

namespace sandbar::egress {

namespace {

using Certificate509 = http::Owned<X509, X509_free>;

constexpr size_t kMaxLeaves = 256;
constexpr time_t kDay = 24 * 3600;
// Clocks that are a little behind must not see a certificate from the future.
constexpr time_t kBackdate = 2 * kDay;
constexpr time_t kCaLife = 10 * 365 * kDay;
constexpr time_t kLeafLife = 30 * kDay;
constexpr time_t kLeafRenewal = 7 * kDay;
constexpr const char* kOrganization = "Sandbar";
constexpr const char* kCaName = "Sandbar sandbox egress CA";
constexpr size_t kMaxCommonName = 64;  // X.520

// The P-256 key whose scalar is `material` mod (order - 1) + 1: never zero, always below the order.
EVP_PKEY* KeyFrom(const std::string& material) {
  http::Owned<EC_GROUP, EC_GROUP_free> group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  http::Owned<BN_CTX, BN_CTX_free> scratch(BN_CTX_secure_new());
  http::Owned<BIGNUM, BN_clear_free> scalar(
      BN_bin2bn(reinterpret_cast<const unsigned char*>(material.data()), static_cast<int>(material.size()), nullptr));
  http::Owned<BIGNUM, BN_free> range(BN_dup(EC_GROUP_get0_order(group.get())));
  BN_sub_word(range.get(), 1);
  BN_mod(scalar.get(), scalar.get(), range.get(), scratch.get());
  BN_add_word(scalar.get(), 1);
  http::Owned<EC_POINT, EC_POINT_free> point(EC_POINT_new(group.get()));
  EC_POINT_mul(group.get(), point.get(), scalar.get(), nullptr, nullptr, scratch.get());
  std::array<uint8_t, 65> encoded{};
  EC_POINT_point2oct(group.get(), point.get(), POINT_CONVERSION_UNCOMPRESSED, encoded.data(), encoded.size(),
                     scratch.get());
  http::Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free> builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0);
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, scalar.get());
  OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, encoded.data(), encoded.size());
  http::Owned<OSSL_PARAM, OSSL_PARAM_free> params(OSSL_PARAM_BLD_to_param(builder.get()));
  http::Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free> context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  EVP_PKEY_fromdata_init(context.get());
  EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR, params.get());
  return key;
}

void SetName(X509_NAME* name, const std::string& common) {
  auto add = [&](const char* field, const char* value) {
    X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(value), -1, -1, 0);
  };
  add("O", kOrganization);
  if (!common.empty() && common.size() <= kMaxCommonName) add("CN", common.c_str());
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  http::Owned<X509_EXTENSION, X509_EXTENSION_free> e(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return e && X509_add_ext(certificate, e.get(), -1) == 1;
}

// Everything but extensions and signature.
Certificate509 Blank(EVP_PKEY* key, const std::string& common, time_t life) {
  Certificate509 out(X509_new());
  X509_set_version(out.get(), X509_VERSION_3);
  std::array<uint8_t, 16> serial{};
  RAND_bytes(serial.data(), serial.size());
  serial[0] = (serial[0] & 0x7f) | 0x40;  // positive, and always 16 bytes
  http::Owned<BIGNUM, BN_free> number(BN_bin2bn(serial.data(), serial.size(), nullptr));
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(out.get()));
  X509_gmtime_adj(X509_getm_notBefore(out.get()), -kBackdate);
  X509_gmtime_adj(X509_getm_notAfter(out.get()), life);
  X509_set_pubkey(out.get(), key);
  SetName(X509_get_subject_name(out.get()), common);
  return out;
}

std::string Constraints(const std::vector<std::string>& names) {
  // No address is ever certified. The names have letters, digits, '-', '_' and '.' only: nothing to escape.
  std::string out = "critical,excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0";
  for (const std::string& name : names) out += ",permitted;DNS:" + name;
  if (names.empty()) out += ",permitted;DNS:invalid";
  return out;
}

Certificate509 MakeCa(EVP_PKEY* key, const std::optional<std::vector<std::string>>& names) {
  Certificate509 ca = Blank(key, kCaName, kCaLife);
  X509_set_issuer_name(ca.get(), X509_get_subject_name(ca.get()));
  bool ok = AddExtension(ca.get(), ca.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
            AddExtension(ca.get(), ca.get(), NID_key_usage, "critical,keyCertSign,cRLSign") &&
            AddExtension(ca.get(), ca.get(), NID_subject_key_identifier, "hash") &&
            (!names || AddExtension(ca.get(), ca.get(), NID_name_constraints, Constraints(*names)));
  SB_CHECK(ok && X509_sign(ca.get(), key, EVP_sha256()) > 0);
  return ca;
}

int ChooseHttp11(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* offered,
                 unsigned int length, void*) {
  constexpr std::string_view kWanted = "http/1.1";
  for (unsigned int at = 0; at < length; at += 1U + offered[at]) {
    std::string_view name(reinterpret_cast<const char*>(offered) + at + 1, offered[at]);
    if (name != kWanted) continue;
    *out = offered + at + 1;
    *out_length = offered[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

struct MachineCa::CachedLeaf {
  std::string name;
  http::Owned<SSL_CTX, SSL_CTX_free> context;
  time_t renew_at = 0;
};

MachineCa::MachineCa(Key key, Key leaf_key, Certificate issuer)
    : key_(std::move(key)), issuer_(std::move(issuer)), leaf_key_(std::move(leaf_key)) {}
MachineCa::~MachineCa() = default;

Result<std::unique_ptr<MachineCa>> MachineCa::Make(std::string_view seed) {
  if (seed.size() < 16) return Fail(Code::kBadRequest, "a machine's seed has at least 16 bytes");
  // 48 bytes: modulo the group's order they are as good as uniform.
  std::string material = crypto::Hkdf(seed, "", "sandbar egress ca v1", 48);
  Key key(KeyFrom(material), EVP_PKEY_free);
  OPENSSL_cleanse(material.data(), material.size());
  Key leaf_key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  if (!key || !leaf_key) return Fail(Code::kInternal, "cannot make the machine's CA key");
  Certificate issuer(MakeCa(key.get(), std::nullopt).release(), X509_free);
  return std::unique_ptr<MachineCa>(new MachineCa(std::move(key), std::move(leaf_key), std::move(issuer)));
}

std::string MachineCa::CertificateFor(const CompiledPolicy& policy) const {
  Certificate509 ca = MakeCa(key_.get(), ConstrainedNames(policy));
  http::Owned<BIO, BIO_free> out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), ca.get());
  char* data = nullptr;
  const long n = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<size_t>(n)};
}

Result<SSL_CTX*> MachineCa::Leaf(const std::string& name) {
  if (auto it = by_name_.find(name); it != by_name_.end()) {
    if (it->second->renew_at > time(nullptr)) {
      leaves_.splice(leaves_.begin(), leaves_, it->second);
      return leaves_.front().context.get();
    }
    leaves_.erase(it->second);
    by_name_.erase(it);
  }
  SB_TRY(CachedLeaf leaf, MakeLeaf(name));
  if (leaves_.size() == kMaxLeaves) {
    by_name_.erase(leaves_.back().name);
    leaves_.pop_back();
  }
  leaves_.push_front(std::move(leaf));
  by_name_[name] = leaves_.begin();
  return leaves_.front().context.get();
}

Result<MachineCa::CachedLeaf> MachineCa::MakeLeaf(const std::string& name) const {
  X509* ca = issuer_.get();
  Certificate509 leaf = Blank(leaf_key_.get(), name, kLeafLife);
  X509_set_issuer_name(leaf.get(), X509_get_subject_name(ca));
  bool ok = AddExtension(leaf.get(), ca, NID_basic_constraints, "critical,CA:FALSE") &&
            AddExtension(leaf.get(), ca, NID_key_usage, "critical,digitalSignature") &&
            AddExtension(leaf.get(), ca, NID_ext_key_usage, "serverAuth") &&
            AddExtension(leaf.get(), ca, NID_subject_key_identifier, "hash") &&
            AddExtension(leaf.get(), ca, NID_authority_key_identifier, "keyid:always") &&
            AddExtension(leaf.get(), ca, NID_subject_alt_name, "DNS:" + name);
  if (!ok || X509_sign(leaf.get(), key_.get(), EVP_sha256()) <= 0)
    return Fail(Code::kInternal, "cannot make a certificate for " + name);
  CachedLeaf out{name, http::Owned<SSL_CTX, SSL_CTX_free>(SSL_CTX_new(TLS_server_method())),
                 time(nullptr) + kLeafLife - kLeafRenewal};
  SSL_CTX* context = out.context.get();
  ok = context != nullptr && SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
       SSL_CTX_use_certificate(context, leaf.get()) == 1 && SSL_CTX_use_PrivateKey(context, leaf_key_.get()) == 1;
  if (!ok) return Fail(Code::kInternal, "cannot serve TLS for " + name);
  // A handshake on the same host is cheap; resumed sessions would only be state to keep.
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_alpn_select_cb(context, ChooseHttp11, nullptr);
  return out;
}

std::optional<std::vector<std::string>> ConstrainedNames(const CompiledPolicy& policy) {
  std::vector<std::string> out;
  for (const DomainEntry& entry : policy.policy().domains) {
    if (entry.rules.empty()) continue;
    // What follows the last "*" covers the pattern and more; a constraint cannot say it better.
    std::string_view suffix = entry.pattern;
    if (size_t star = suffix.rfind('*'); star != suffix.npos) suffix.remove_prefix(star + 1);
    if (suffix.starts_with('.')) suffix.remove_prefix(1);
    if (suffix.empty()) return std::nullopt;
    out.emplace_back(suffix);
  }
  std::ranges::sort(out);
  auto repeated = std::ranges::unique(out);
  out.erase(repeated.begin(), repeated.end());
  return out;
}

}  // namespace sandbar::egress
