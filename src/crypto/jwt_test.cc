#include "crypto/jwt.h"

#include <gtest/gtest.h>

#include "crypto/digest.h"

namespace sandbar::crypto {
namespace {

// The example token of jwt.io.
TEST(Jwt, KnownToken) {
  auto sign = [](std::string_view text) { return HmacSha256("your-256-bit-secret", text); };
  EXPECT_EQ(
      SignJwt(R"({"alg":"HS256","typ":"JWT"})", R"({"sub":"1234567890","name":"John Doe","iat":1516239022})", sign),
      "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyf"
      "Q.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c");
}

}  // namespace
}  // namespace sandbar::crypto
