#include "egress/name_dialler.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "egress/name_table.h"
#include "support/egress/custom_fixture.h"

namespace sandbar::egress::testing {
namespace {

class NameDiallerTest : public ::testing::Test {
 protected:
  NameDiallerTest() : server_(BoundSocket(SOCK_STREAM)) {
    config_.resolver = resolver_.endpoint();
    config_.allow_addresses = {"127.0.0.0/8"};
    resolver_.Add("a.test", "127.0.0.1");
  }
  template <class T>
  Result<T> Run(Task<T> task) {
    std::optional<Result<T>> out;
    auto keep = [&](Task<T> t) -> asio::awaitable<void> { out.emplace(co_await std::move(t)); };
    io_.restart();
    asio::co_spawn(io_, keep(std::move(task)), asio::detached);
    io_.run();
    return *std::move(out);
  }
  Result<Stream> Dial(const std::string& name, PolicyRef policy = nullptr) {
    return Run(DialName(name, PortOf(server_.get()), std::move(policy), &config_));
  }

  asio::io_context io_;
  FakeResolver resolver_;
  EgressConfig config_;
  Fd server_;
};

TEST_F(NameDiallerTest, Resolves) {
  auto found = Run(ResolveName("a.test", &config_));
  ASSERT_TRUE(found.has_value()) << found.error().message;
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(ToString(found->front()), "127.0.0.1");
  auto missing = Run(ResolveName("missing.test", &config_));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  config_.resolver = "nonsense";
  EXPECT_EQ(Run(ResolveName("a.test", &config_)).error().code, Code::kUnavailable);
}

TEST_F(NameDiallerTest, NothingIsPacedTowardsANeighbour) {
  auto up = Dial("a.test");
  ASSERT_TRUE(up.has_value()) << up.error().message;
  std::array<char, 16> name{};
  socklen_t len = name.size();
  ASSERT_EQ(::getsockopt(up->native_handle(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &len), 0);
  EXPECT_STREQ(name.data(), "reno");
}

TEST_F(NameDiallerTest, DeadResolverIsUnavailable) {
  Fd deaf = BoundSocket(SOCK_DGRAM);
  config_.resolver = "127.0.0.1:" + std::to_string(PortOf(deaf.get()));
  config_.dns_timeout = std::chrono::milliseconds(50);
  EXPECT_EQ(Run(ResolveName("a.test", &config_)).error().code, Code::kUnavailable);
}

TEST_F(NameDiallerTest, Dials) {
  auto up = Dial("a.test");
  ASSERT_TRUE(up.has_value()) << up.error().message;
  Fd peer = AcceptOne(server_.get());
  up->close();
  EXPECT_EQ(ReadToEnd(peer.get()).error, 0);
}

TEST_F(NameDiallerTest, PolicyAndOperatorBothHaveASay) {
  auto denied = Dial("a.test", Custom({"*"}, {}, {"127.0.0.0/8"}));
  ASSERT_FALSE(denied.has_value());
  EXPECT_EQ(denied.error().code, Code::kForbidden);
  EXPECT_TRUE(denied.error().message.contains("a.test resolves to 127.0.0.1")) << denied.error().message;
  config_.allow_addresses = {};
  denied = Dial("a.test");
  ASSERT_FALSE(denied.has_value());
  EXPECT_EQ(denied.error().code, Code::kForbidden);
  EXPECT_TRUE(denied.error().message.contains("loopback"));
}

TEST_F(NameDiallerTest, TheServersOwnNamesLeadNowhere) {
  config_.own_names = {"a.test", "own.test"};
  EXPECT_TRUE(Dial("a.test").has_value()) << "the operator listed its address";
  for (const char* name : {"own.test", "sb-x.own.test"}) {
    resolver_.Add(name, "8.8.8.8");
    auto denied = Dial(name);
    ASSERT_FALSE(denied.has_value());
    EXPECT_EQ(denied.error().code, Code::kForbidden);
    EXPECT_TRUE(denied.error().message.contains("this server's own name")) << denied.error().message;
  }
}

TEST_F(NameDiallerTest, RefusedIsUnavailable) {
  resolver_.Add("gone.test", "127.0.0.1");
  uint16_t port = PortOf(server_.get());
  server_.Reset();
  auto up = Run(DialName("gone.test", port, nullptr, &config_));
  ASSERT_FALSE(up.has_value());
  EXPECT_EQ(up.error().code, Code::kUnavailable);
}

TEST(NameTable, OneAddressPerNameBoundedAndNotReusedSoon) {
  NameTable table;
  IpAddress first = table.AddressFor("0.test");
  EXPECT_TRUE(NameTable::IsMadeUp(first));
  EXPECT_EQ(table.AddressFor("0.test"), first);
  EXPECT_EQ(table.NameOf(first), "0.test");
  std::set<IpAddress> given;
  for (size_t i = 1; i <= kMaxNames; ++i) given.insert(table.AddressFor(std::to_string(i) + ".test"));
  EXPECT_EQ(given.size(), kMaxNames);
  EXPECT_FALSE(given.contains(first));
  EXPECT_EQ(table.NameOf(first), "");  // the oldest made room
  EXPECT_NE(table.AddressFor("0.test"), first);
  EXPECT_EQ(table.NameOf(*ParseAddress("192.0.2.1")), "");
}

TEST(NameTable, GoesRoundTheWholeRange) {
  NameTable table;
  IpAddress kept = table.AddressFor("kept.test");
  for (int i = 0; i < 140000; ++i) {
    IpAddress address = table.AddressFor(std::to_string(i) + ".test");
    ASSERT_TRUE(NameTable::IsMadeUp(address)) << ToString(address);
    ASSERT_NE(address, kept);
    ASSERT_EQ(table.NameOf(kept), "kept.test");  // used, so it stays
  }
}

}  // namespace
}  // namespace sandbar::egress::testing
