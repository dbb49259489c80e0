#include "wire/http_hops.h"

#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

std::vector<std::string> Passed(const std::vector<HttpField>& fields) {
  std::vector<std::string> names;
  for (const HttpField& f : EndToEndFields(fields)) names.push_back(f.name);
  return names;
}

TEST(HttpHops, FieldsOfTheConnectionDoNotPass) {
  for (const char* name :
       {"Connection", "keep-alive", "TE", "Trailer", "transfer-encoding", "Upgrade", "Content-Length",
        "Proxy-Authenticate", "proxy-authorization", "Proxy-Connection", "Proxy-Status"})
    EXPECT_TRUE(Passed({{name, "x"}}).empty()) << name;
  EXPECT_EQ(Passed({{"X-A", "1"}, {"Proxy-B", "2"}, {"set-cookie", "3"}, {"Set-Cookie", "4"}}),
            (std::vector<std::string>{"X-A", "set-cookie", "Set-Cookie"}));
}

TEST(HttpHops, NeitherDoThoseThatConnectionNames) {
  EXPECT_EQ(Passed({{"x-one", "1"},
                    {"Connection", "X-One , ,x-two"},
                    {"X-TWO", "2"},
                    {"connection", "x-three"},
                    {"x-three", "3"},
                    {"x-four", "4"}}),
            (std::vector<std::string>{"x-four"}));
}

}  // namespace
}  // namespace sandbar::wire
