#include "support/http/raw_client.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>

#include "http/openssl_owned.h"

namespace sandbar::http {

namespace {

void AddExtension(X509* cert, int nid, const char* value) {
  Owned<X509_EXTENSION, X509_EXTENSION_free> e(X509V3_EXT_conf_nid(nullptr, nullptr, nid, value));
  X509_add_ext(cert, e.get(), -1);
}

}  // namespace

TestCertificate::TestCertificate(const char* names) {
  std::string name = testing::TempDir() + "/sandbar-tls-XXXXXX";
  dir_ = mkdtemp(name.data());
  Owned<EVP_PKEY, EVP_PKEY_free> pair(EVP_EC_gen("P-256"));
  Owned<X509, X509_free> x509(X509_new());
  X509_set_version(x509.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509.get()), 24 * 3600);
  X509_set_pubkey(x509.get(), pair.get());
  X509_NAME* subject = X509_get_subject_name(x509.get());
  const std::string common = "sandbar test";
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(common.c_str()), -1,
                             -1, 0);
  X509_set_issuer_name(x509.get(), subject);
  AddExtension(x509.get(), NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(x509.get(), NID_subject_alt_name, names);
  X509_sign(x509.get(), pair.get(), EVP_sha256());
  Owned<FILE, fclose> cert_file(fopen(cert().c_str(), "w"));
  PEM_write_X509(cert_file.get(), x509.get());
  Owned<FILE, fclose> key_file(fopen(key().c_str(), "w"));
  PEM_write_PrivateKey(key_file.get(), pair.get(), nullptr, nullptr, 0, nullptr, nullptr);
}

}  // namespace sandbar::http
