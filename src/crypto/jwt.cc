#include "crypto/jwt.h"

#include "base/base64.h"

namespace sandbar::crypto {

std::string SignJwt(std::string_view header, std::string_view claims,
                    const std::function<std::string(std::string_view text)>& sign) {
  const std::string text = EncodeBase64Url(header) + "." + EncodeBase64Url(claims);
  return text + "." + EncodeBase64Url(sign(text));
}

}  // namespace sandbar::crypto
