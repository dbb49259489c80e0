#include "crypto/digest.h"

#include <gtest/gtest.h>

#include "base/ids.h"
#include "crypto/sha256_stream.h"

namespace sandbar::crypto {
namespace {

TEST(Digest, Sha256) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hex(Sha256("abc")), Sha256Hex("abc"));
}

TEST(Digest, Sha256InPieces) {
  EXPECT_EQ(Sha256Stream().Hex(), Sha256Hex(""));
  Sha256Stream digest;
  for (const char* piece : {"a", "", "bc"}) digest.Update(piece);
  EXPECT_EQ(digest.Hex(), Sha256Hex("abc"));
  EXPECT_EQ(Sha256Stream::ToHex({0x00, 0x0f, 0xf0}), "000ff0" + std::string(58, '0'));
}

TEST(Digest, Sha1) {
  EXPECT_EQ(Hex(Sha1("abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
}

// RFC 4231, test case 2.
TEST(Digest, Hmac) {
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

// RFC 5869, test cases 1 and 3.
TEST(Digest, Hkdf) {
  const std::string secret(22, '\x0b');
  const std::string salt("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c", 13);
  const std::string info("\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9", 10);
  EXPECT_EQ(Hex(Hkdf(secret, salt, info, 42)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
  EXPECT_EQ(Hex(Hkdf(secret, "", "", 42)),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
  // One block of it is two HMACs: keys that were derived by hand stay the same.
  EXPECT_EQ(Hkdf("secret", "salt", "use", 32), HmacSha256(HmacSha256("salt", "secret"), "use\x01"));
}

TEST(Digest, SameSecret) {
  EXPECT_TRUE(SameSecret("abc", "abc"));
  EXPECT_TRUE(SameSecret("", ""));
  EXPECT_FALSE(SameSecret("abc", "abd"));
  EXPECT_FALSE(SameSecret("abc", "ab"));
}

}  // namespace
}  // namespace sandbar::crypto
