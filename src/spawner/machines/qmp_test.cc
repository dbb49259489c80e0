// What QEMU says is read as if a guest had taken it over.
#include "spawner/machines/qmp.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "base/fd.h"
#include "base/files.h"
#include "os/openat.h"
#include "os/process.h"

namespace sandbar::spawner {
namespace {

TEST(QmpField, FindsKeysOfTheOutermostObjectOnly) {
  const std::string line = R"({"return": {"id": "no", "x": [1, {"event": "}"}]}, "id": "s1", "n": 5})";
  EXPECT_EQ(QmpField(line, "id"), "\"s1\"");
  EXPECT_EQ(QmpField(line, "n"), "5");
  EXPECT_EQ(QmpField(line, "event"), "");
  EXPECT_EQ(QmpField(QmpField(line, "return"), "id"), "\"no\"");
  EXPECT_EQ(QmpField(R"({"a": "\"id\": \"s1\"", "id": "s2"})", "id"), "\"s2\"");
  for (const char* broken : {"", "{", "{\"id", "{\"id\"", "{\"id\":", "{\"id\": \"s1", "[\"id\"]", "{\"id\": {}",
                             "nonsense", "{\"id\" 5}", "{,}", "{\"a\": 1 \"id\": 2", "{\"\\"})
    EXPECT_EQ(QmpField(broken, "id"), "") << broken;
}

class QmpTest : public testing::Test {
 protected:
  QmpTest() {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()), 0);
    ours_ = Fd(pair[0]);
    qemu_ = Fd(pair[1]);
  }
  void Say(std::string_view text) { EXPECT_TRUE(WriteAll(qemu_.get(), text)); }
  static int64_t Soon() { return os::BootTimeMs() + 200; }

  Fd ours_, qemu_;
};

TEST_F(QmpTest, TakesTheAnswerWithItsOwnNumber) {
  Say("{\"QMP\": {}}\r\n{\"return\": {}}\r\n{\"return\": {}, \"id\": \"s7\"}\r\n{\"event\": \"STOP\"}\r\n");
  Say("{\"id\": \"s1\", \"error\": {\"class\": \"x\", \"desc\": \"not \\u0007now\"}}\r\n{\"return\": {}, \"id\": "
      "\"s2\"}\r\n");
  Qmp qmp(ours_.get(), Soon());
  auto refused = qmp.Ask("stop");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("refused stop"), std::string::npos);
  EXPECT_TRUE(qmp.Ask("cont"));
}

TEST_F(QmpTest, DoesNotWaitForEver) {
  Qmp qmp(ours_.get(), Soon());
  auto silent = qmp.Ask("stop");
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, Code::kTimeout);
}

TEST_F(QmpTest, ALineHasALongestLength) {
  std::thread flood([this] {
    const std::string much(4096, 'x');
    for (int i = 0; i < 100; ++i)
      if (::send(qemu_.get(), much.data(), much.size(), MSG_NOSIGNAL) < 0) ::usleep(1000);
  });
  Qmp qmp(ours_.get(), os::BootTimeMs() + 60'000);
  auto flooded = qmp.Ask("stop");
  flood.join();
  ASSERT_FALSE(flooded);
  EXPECT_EQ(flooded.error().code, Code::kProtocol);
}

TEST_F(QmpTest, NoticesTheEnd) {
  qemu_.Reset();
  Qmp qmp(ours_.get(), Soon());
  EXPECT_FALSE(qmp.Ask("stop"));
}

}  // namespace
}  // namespace sandbar::spawner
