#include "layer_scanner/sha256.h"

namespace sandbar::layer_scanner {

Sha256::Bytes Sha256::End() {
  Bytes bytes{};
  unsigned size = 0;
  ::EVP_DigestFinal_ex(context_.get(), bytes.data(), &size);
  return bytes;
}

std::string Sha256::ToHex(const Bytes& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

}  // namespace sandbar::layer_scanner
