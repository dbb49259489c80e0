// The daemon's end against a spawner that misbehaves in every way a broken one could.
#include "engine/spawner_client/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <thread>

#include "os/openat.h"
#include "os/unix_socket.h"

namespace sandbar::engine {
namespace {

using protocol::TaggedRequest;
using protocol::TaggedResponse;

// One connection, served by a script in a thread of its own.
class FakeSpawner {
 public:
  using Script = std::function<void(FakeSpawner&)>;
  explicit FakeSpawner(Script script) {
    std::string pattern = "/tmp/sandbar-connection-XXXXXX";
    SB_CHECK(::mkdtemp(pattern.data()) != nullptr);
    dir_ = pattern;
    auto dir = os::OpenPath(dir_, O_RDONLY | O_DIRECTORY);
    auto listener = os::MakeUnixSocket(SOCK_SEQPACKET);
    SB_CHECK(dir && listener);
    SB_CHECK(os::BindAndListen(listener->get(), dir->get(), "s", 0600, ::getuid(), ::getgid()));
    thread_ = std::thread([this, l = std::move(*listener), run = std::move(script)] {
      Await(l.get());
      peer_ = Fd(::accept4(l.get(), nullptr, nullptr, SOCK_CLOEXEC));
      run(*this);
      peer_.Reset();
    });
  }
  ~FakeSpawner() {
    thread_.join();
    std::filesystem::remove_all(dir_);
  }
  FakeSpawner(const FakeSpawner&) = delete;
  FakeSpawner& operator=(const FakeSpawner&) = delete;
  std::string path() const { return dir_ + "/s"; }

  TaggedRequest Receive() {
    Await(peer_.get());
    auto packet = os::ReceivePacket(peer_.get(), protocol::kMaxSpawnerMessage, false);
    SB_CHECK(packet && packet->has_value());
    auto request = protocol::DecodeRequest((*packet)->bytes);
    SB_CHECK(request.has_value());
    return *request;
  }
  void Send(uint32_t tag, protocol::SpawnerResponse body, std::vector<int> fds = {}) {
    TaggedResponse response{tag, std::move(body)};
    SB_CHECK(os::SendPacket(peer_.get(), Encode(response), fds));
  }
  void SendRaw(std::string_view bytes) { SB_CHECK(os::SendPacket(peer_.get(), bytes, {})); }

 private:
  static void Await(int fd) {
    pollfd p{fd, POLLIN, 0};
    SB_CHECK(::poll(&p, 1, 30'000) == 1);
  }
  std::string dir_;
  Fd peer_;
  std::thread thread_;
};

// Runs a task to its end on a fresh loop.
template <class T>
Result<T> RunTask(asio::io_context& io, Task<T> task) {
  std::optional<Result<T>> out;
  asio::co_spawn(io, std::move(task), [&](std::exception_ptr e, Result<T> r) {
    SB_CHECK(!e);
    out = std::move(r);
  });
  io.restart();
  io.run();
  SB_CHECK(out.has_value());
  return std::move(*out);
}

Task<size_t> CallOnce(std::string path, protocol::SpawnerRequest request) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(auto connection, Connection::Open(ex, path));
  auto reply = co_await connection->Call(std::move(request));
  connection->Close("done");
  if (!reply) co_return std::unexpected(std::move(reply).error());
  co_return reply->fds.size();
}

Task<uint32_t> SayHello(std::string path) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(auto connection, Connection::Open(ex, path));
  auto hello = co_await connection->Hello();
  const protocol::Feature first{protocol::kOldestSpawnerVersion, "walk"}, later{1000, "fly"};
  EXPECT_EQ(connection->Require(first).has_value(), hello.has_value());
  auto refused = connection->Require(later);
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kConflict);
  connection->Close("done");
  if (!hello) co_return std::unexpected(std::move(hello).error());
  co_return hello->version;
}

// A spawner that speaks these versions, which may be none of ours.
void Greet(FakeSpawner& s, protocol::VersionRange speaks) {
  const protocol::VersionRange ours = protocol::SpawnerVersions();
  for (uint32_t expected = ours.newest; expected >= ours.oldest; --expected) {
    auto request = s.Receive();
    const auto* hello = std::get_if<protocol::HelloReq>(&request.body);
    SB_CHECK(hello != nullptr && hello->version == expected);
    if (speaks.Has(expected)) {
      protocol::HelloResp accepted;
      accepted.version = expected;
      return s.Send(request.tag, accepted);
    }
    s.Send(request.tag, protocol::ErrorResp{static_cast<int32_t>(Code::kUnsupported), "the spawner speaks another"});
  }
}

TEST(Connection, TheHighestCommonVersionIsSpoken) {
  const protocol::VersionRange ours = protocol::SpawnerVersions();
  for (protocol::VersionRange speaks :
       {protocol::VersionRange{ours.oldest, ours.oldest}, ours, protocol::VersionRange{ours.newest, ours.newest + 5}}) {
    FakeSpawner fake([speaks](FakeSpawner& s) { Greet(s, speaks); });
    asio::io_context io;
    auto version = RunTask(io, SayHello(fake.path()));
    ASSERT_TRUE(version) << version.error().message;
    EXPECT_EQ(*version, protocol::HighestCommon(ours, speaks));
  }
}

TEST(Connection, ASpawnerThatSpeaksNoneOfOurVersionsIsRefusedWithBothNamed) {
  FakeSpawner fake([](FakeSpawner& s) { Greet(s, {500, 501}); });
  asio::io_context io;
  auto version = RunTask(io, SayHello(fake.path()));
  ASSERT_FALSE(version);
  EXPECT_EQ(version.error().code, Code::kUnsupported);
  EXPECT_NE(version.error().message.find(Describe(protocol::SpawnerVersions())), std::string::npos);
  EXPECT_NE(version.error().message.find("the spawner speaks another"), std::string::npos);
}

TEST(Connection, AnswersComeByTagWithTheirFds) {
  FakeSpawner fake([](FakeSpawner& s) {
    auto request = s.Receive();
    s.Send(request.tag + 7, protocol::OkResp{}, {0});  // nobody's: dropped
    s.Send(request.tag, protocol::OkResp{}, {0, 1});
  });
  asio::io_context io;
  auto fds = RunTask(io, CallOnce(fake.path(), protocol::ListReq{}));
  ASSERT_TRUE(fds) << fds.error().message;
  EXPECT_EQ(*fds, 2U);
}

TEST(Connection, ErrorsKeepTheirCode) {
  for (auto [sent, expected] : {std::pair(static_cast<int>(Code::kNotFound), Code::kNotFound),
                                std::pair(-1, Code::kInternal), std::pair(100000, Code::kInternal)}) {
    FakeSpawner fake([code = sent](FakeSpawner& s) {
      auto request = s.Receive();
      s.Send(request.tag, protocol::ErrorResp{code, "why", 2});
    });
    asio::io_context io;
    auto r = RunTask(io, CallOnce(fake.path(), protocol::ListReq{}));
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().code, expected);
    EXPECT_EQ(r.error().message, "why");
  }
}

TEST(Connection, AnEndOrGarbageFailsWhatIsInFlight) {
  for (bool garbage : {false, true}) {
    FakeSpawner fake([garbage](FakeSpawner& s) {
      s.Receive();
      if (garbage) s.SendRaw("\x01\x02");
    });
    asio::io_context io;
    auto r = RunTask(io, CallOnce(fake.path(), protocol::ListReq{}));
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().code, Code::kUnavailable);
  }
}

TEST(Connection, NobodyThere) {
  asio::io_context io;
  auto r = RunTask(io, CallOnce("/nonexistent/spawner.sock", protocol::ListReq{}));
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::kUnavailable);
}

Task<int> WaitForExit(std::string path) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(auto connection, Connection::Open(ex, path));
  auto exit = connection->Track("m1");
  protocol::SpawnerRequest request = protocol::ListReq();
  SB_CO_TRYV(co_await connection->Call(std::move(request)));
  while (!exit->exited && !exit->lost) {
    SB_CO_TRYV(co_await exit->changed.Wait());
  }
  connection->Close("done");
  co_return exit->exited ? exit->exited->status : -1;
}

TEST(Connection, ExitsReachThoseWhoTrackThem) {
  FakeSpawner fake([](FakeSpawner& s) {
    auto request = s.Receive();
    s.Send(0, protocol::ExitedEvent{"other", 3, false});
    s.Send(0, protocol::ExitedEvent{"m1", 9, true});  // before the answer: must not be missed
    s.Send(request.tag, protocol::OkResp{});
  });
  asio::io_context io;
  auto status = RunTask(io, WaitForExit(fake.path()));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(*status, 9);
}

TEST(Connection, LosingTheSpawnerEndsTheWait) {
  FakeSpawner fake([](FakeSpawner& s) {
    auto request = s.Receive();
    s.Send(request.tag, protocol::OkResp{});
  });
  asio::io_context io;
  auto status = RunTask(io, WaitForExit(fake.path()));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(*status, -1);
}

Task<> CancelOne(std::string path) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(auto connection, Connection::Open(ex, path));
  TaskGroup group(ex);
  std::optional<Code> code;
  auto call = [](std::shared_ptr<Connection> c, std::optional<Code>* out) -> Task<> {
    protocol::SpawnerRequest request = protocol::ListReq();
    auto reply = co_await c->Call(std::move(request));
    if (!reply) *out = reply.error().code;
    co_return Result<>{};
  };
  auto received = connection->Track("m1");
  group.Spawn(call(connection, &code));
  while (!received->exited && !received->lost) SB_CO_TRYV(co_await received->changed.Wait());
  co_await group.Close();
  // The next one is answered although the first one's answer was never awaited.
  protocol::SpawnerRequest request = protocol::UsageReq();
  auto reply = co_await connection->Call(std::move(request));
  connection->Close("done");
  if (code != Code::kCancelled) co_return Fail(Code::kInternal, "not cancelled");
  if (!reply) co_return std::unexpected(std::move(reply).error());
  co_return Result<>{};
}

TEST(Connection, ACancelledCallLeavesTheOthersAlone) {
  FakeSpawner fake([](FakeSpawner& s) {
    auto first = s.Receive();
    s.Send(0, protocol::ExitedEvent{"m1", 0, false});  // says that the first is here; it is cancelled then
    auto second = s.Receive();
    s.Send(first.tag, protocol::OkResp{});
    s.Send(second.tag, protocol::UsageResp{});
  });
  asio::io_context io;
  auto r = RunTask(io, CancelOne(fake.path()));
  EXPECT_TRUE(r) << r.error().message;
}

}  // namespace
}  // namespace sandbar::engine
