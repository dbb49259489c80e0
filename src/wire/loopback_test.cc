#include "wire/loopback.h"

#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

TEST(Loopback, NamesAndAddresses) {
  for (const char* host : {"localhost", "LocalHost", "localhost.", "127.0.0.1", "127.1.2.3", "::1"})
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  for (const char* host :
       {"", ".", "127.example.com", "127.0.0.1.example.com", "127.1", "127.", "localhost.example.com", "xlocalhost",
        "128.0.0.1", "::2", "[::1]", "0.0.0.0", "localhost:80"})
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
}

}  // namespace
}  // namespace sandbar::wire
