#include "base/base64.h"

#include <gtest/gtest.h>

namespace sandbar {
namespace {

// RFC 4648, section 10.
TEST(Base64, KnownTexts) {
  const std::pair<const char*, const char*> known[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : known) {
    EXPECT_EQ(EncodeBase64(bytes), text);
    EXPECT_EQ(DecodeBase64(text), bytes);
    std::string bare = text;
    bare.resize(bare.find_last_not_of('=') + 1);
    EXPECT_EQ(EncodeBase64Url(bytes), bare);
    EXPECT_EQ(DecodeBase64Url(bare), bytes);
  }
  EXPECT_EQ(EncodeBase64("\xfb\xff"), "+/8=");
  EXPECT_EQ(EncodeBase64Url("\xfb\xff"), "-_8");
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zg===", "Z===", "====", "Zm9v\n", "Zm-v", "Zm9v====", "Z=g="})
    EXPECT_FALSE(DecodeBase64(text)) << text;
  // The last one has bits that belong to no byte.
  for (const char* text : {"Z", "Zg==", "Zm+v", "Zm9vY", " Zm9v", "Zh"}) EXPECT_FALSE(DecodeBase64Url(text)) << text;
}

TEST(Base64, PrefixTakesBothAlphabets) {
  size_t used = 0;
  EXPECT_EQ(DecodeBase64Prefix("-_8= and more", &used), "\xfb\xff");
  EXPECT_EQ(used, 3u);
  EXPECT_EQ(DecodeBase64Prefix("+/8"), "\xfb\xff");
  EXPECT_EQ(DecodeBase64Prefix("."), "");
}

TEST(Base64, Characters) {
  EXPECT_TRUE(IsBase64Text("Zm9v+/=="));
  EXPECT_FALSE(IsBase64Text("Zm9v\n"));
  EXPECT_FALSE(IsBase64Text("\""));
}

}  // namespace
}  // namespace sandbar
