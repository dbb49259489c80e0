// A SHA-256 of bytes that come in pieces. One thread. For bytes that are there at once: crypto/digest.h.
//
//   Sha256Stream digest;
//   digest.Update(piece);
//   std::string text = digest.Hex();
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sandbar::crypto {

class Sha256Stream {
 public:
  using Bytes = std::array<uint8_t, 32>;

  Sha256Stream();
  void Update(std::string_view bytes);
  // End and Hex finish the digest: call one of them, once, and Update no more.
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

}  // namespace sandbar::crypto
