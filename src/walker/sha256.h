// A SHA-256 under way. One thread.
#pragma once

#include <openssl/evp.h>

#include <memory>
#include <string>
#include <string_view>

namespace sandbar::walker {

class Sha256 {
 public:
  Sha256() : context_(::EVP_MD_CTX_new()) { ::EVP_DigestInit_ex(context_.get(), ::EVP_sha256(), nullptr); }
  void Update(std::string_view bytes) { ::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  // Ends it: lower-case hex.
  std::string Hex();

 private:
  struct Release {
    void operator()(EVP_MD_CTX* context) const { ::EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Release> context_;
};

}  // namespace sandbar::walker
