#include "walker/sha256.h"

#include <array>

namespace sandbar::walker {

std::string Sha256::Hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  ::EVP_DigestFinal_ex(context_.get(), bytes.data(), &size);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (unsigned i = 0; i < size; ++i) {
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  return out;
}

}  // namespace sandbar::walker
