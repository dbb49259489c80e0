#include "wire/html.h"

#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

TEST(Html, Escapes) {
  EXPECT_EQ(EscapeHtml(R"(<a href="x">'&'</a>)"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(EscapeHtml("plain"), "plain");
}

}  // namespace
}  // namespace sandbar::wire
