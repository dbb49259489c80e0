// A SHA-256 under way. One thread.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sandbar::layer_scanner {

class Sha256 {
 public:
  Sha256() : context_(::EVP_MD_CTX_new()) { ::EVP_DigestInit_ex(context_.get(), ::EVP_sha256(), nullptr); }
  void Update(std::string_view bytes) { ::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  using Bytes = std::array<uint8_t, 32>;
  // Ends it, as either does.
  Bytes End();
  std::string Hex() { return ToHex(End()); }
  // Lower case.
  static std::string ToHex(const Bytes& bytes);

 private:
  struct Release {
    void operator()(EVP_MD_CTX* context) const { ::EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Release> context_;
};

}  // namespace sandbar::layer_scanner
