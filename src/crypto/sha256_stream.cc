#include "crypto/sha256_stream.h"

#include "base/ids.h"
#include "base/result.h"

namespace sandbar::crypto {

Sha256Stream::Sha256Stream() : context_(::EVP_MD_CTX_new()) {
  SB_CHECK(::EVP_DigestInit_ex(context_.get(), ::EVP_sha256(), nullptr) == 1);
}

void Sha256Stream::Update(std::string_view bytes) {
  SB_CHECK(::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

Sha256Stream::Bytes Sha256Stream::End() {
  Bytes bytes{};
  unsigned size = 0;
  SB_CHECK(::EVP_DigestFinal_ex(context_.get(), bytes.data(), &size) == 1 && size == bytes.size());
  return bytes;
}

std::string Sha256Stream::ToHex(const Bytes& bytes) {
  return sandbar::Hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace sandbar::crypto
