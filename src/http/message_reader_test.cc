#include "http/message_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <deque>

namespace sandbar::http {
namespace {

// Gives the prepared pieces, one for each read, and then the end of the stream.
class ScriptedStream final : public ByteStream {
 public:
  explicit ScriptedStream(std::deque<std::string> pieces) : pieces_(std::move(pieces)) {}
  Task<> Handshake() override { co_return Result<>{}; }
  Task<size_t> ReadSome(char* data, size_t n) override {
    if (pieces_.empty()) co_return size_t{0};
    const size_t taken = pieces_.front().copy(data, n);
    pieces_.front().erase(0, taken);
    if (pieces_.front().empty()) pieces_.pop_front();
    largest_ = std::max(largest_, taken);
    co_return taken;
  }
  Task<> WriteAll(Pieces) override { co_return Result<>{}; }
  Task<> Linger(size_t) override { co_return Result<>{}; }
  void Close() override {}
  int fd() const override { return -1; }
  size_t largest() const { return largest_; }

 private:
  std::deque<std::string> pieces_;
  size_t largest_ = 0;
};

class Counter final : public ReadProgress {
 public:
  void OnHeadBegin() override { ++begun; }
  void OnHeadEnd() override { ++ended; }
  void OnRead() override { ++reads; }
  int begun = 0, ended = 0, reads = 0;
};

template <class T>
Result<T> Wait(Task<T> task) {
  asio::io_context io;
  Result<T> out = Fail(Code::kInternal, "not finished");
  asio::co_spawn(io, std::move(task), [&](std::exception_ptr e, Result<T> r) {
    if (e) std::rethrow_exception(e);
    out = std::move(r);
  });
  io.run();
  return out;
}

std::string ReadWhole(MessageReader& reader) {
  std::string all;
  for (;;) {
    auto piece = Wait(reader.ReadBody());
    EXPECT_TRUE(piece) << piece.error().message;
    if (!piece || piece->empty()) return all;
    all += *piece;
  }
}

constexpr std::string_view kResponse = "HTTP/1.1 200 OK\r\n";

TEST(MessageReader, MessagesFollowEachOther) {
  ScriptedStream stream({"POST /a HTTP/1.1\r\nHo", "st: x\r\nContent-Length: 5\r\n\r\nhel", "loGET /b HTTP/1.1\r\n",
                         "Host: x\r\n\r\nbehind"});
  Counter counter;
  MessageReader reader(&stream, {.progress = &counter});
  EXPECT_TRUE(*Wait(reader.ReadHead()));
  EXPECT_EQ(reader.head().target, "/a");
  EXPECT_EQ(counter.begun, 1);
  EXPECT_EQ(counter.ended, 1);
  EXPECT_EQ(ReadWhole(reader), "hello");
  reader.Next();
  EXPECT_TRUE(*Wait(reader.ReadHead()));
  EXPECT_EQ(reader.head().target, "/b");
  EXPECT_EQ(counter.begun, 2);
  EXPECT_EQ(counter.reads, 4);
  EXPECT_EQ(reader.buffered(), "behind");
  char taken[4];
  EXPECT_EQ(reader.TakeBuffered(taken, sizeof taken), 4u);
  EXPECT_EQ(reader.buffered(), "nd");
  EXPECT_FALSE(reader.ended());
}

TEST(MessageReader, EndOfStreamBeforeAndInsideAHead) {
  ScriptedStream nothing({});
  MessageReader quiet(&nothing, {});
  EXPECT_FALSE(*Wait(quiet.ReadHead()));
  EXPECT_FALSE(quiet.parser().head_started());
  EXPECT_TRUE(quiet.ended());
  ScriptedStream some({"GET / HT"});
  MessageReader cut(&some, {});
  EXPECT_FALSE(*Wait(cut.ReadHead()));
  EXPECT_TRUE(cut.parser().head_started());
}

TEST(MessageReader, MalformedAndLargeHeads) {
  ScriptedStream odd({"GET / HTTP/1.1\nHost: x\r\n\r\n"});
  MessageReader reader(&odd, {});
  EXPECT_EQ(Wait(reader.ReadHead()).error().code, Code::kBadRequest);
  EXPECT_TRUE(reader.parser().failed());
  ScriptedStream long_head({"GET /" + std::string(300, 'a')});
  MessageReader bounded(&long_head, {.limits = {.head_bytes = 200}});
  EXPECT_EQ(Wait(bounded.ReadHead()).error().code, Code::kTooLarge);
}

TEST(MessageReader, LargeBodiesAreReadInLargePieces) {
  const std::string body(300 << 10, 'x');
  ScriptedStream stream({std::string(kResponse) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n",
                         body + "HTTP/1.1 204 No Content\r\n\r\n"});
  MessageReader reader(&stream, {.kind = wire::HttpKind::kResponse});
  EXPECT_TRUE(*Wait(reader.ReadHead()));
  EXPECT_EQ(ReadWhole(reader), body);
  EXPECT_EQ(stream.largest(), 64u << 10);
  reader.Next();
  EXPECT_TRUE(*Wait(reader.ReadHead()));
  EXPECT_EQ(reader.head().status, 204);
}

TEST(MessageReader, ChunksAndTrailers) {
  ScriptedStream stream({std::string(kResponse) + "Transfer-Encoding: chunked\r\n\r\n3\r", "\nabc\r\n4\r\nde", "fg\r",
                         "\n0\r\nX-Sum: 1\r\n\r\nHTTP"});
  MessageReader reader(&stream, {.kind = wire::HttpKind::kResponse});
  EXPECT_TRUE(*Wait(reader.ReadHead()));
  EXPECT_EQ(ReadWhole(reader), "abcdefg");
  EXPECT_EQ(reader.buffered(), "HTTP");
}

TEST(MessageReader, EndOfStreamEndsOnlyABodyWithoutLength) {
  ScriptedStream open({std::string(kResponse) + "\r\nall", " of it"});
  MessageReader until_close(&open, {.kind = wire::HttpKind::kResponse});
  EXPECT_TRUE(*Wait(until_close.ReadHead()));
  EXPECT_EQ(ReadWhole(until_close), "all of it");
  ScriptedStream cut({std::string(kResponse) + "Content-Length: 9\r\n\r\nall"});
  MessageReader with_length(&cut, {.kind = wire::HttpKind::kResponse});
  EXPECT_TRUE(*Wait(with_length.ReadHead()));
  EXPECT_EQ(*Wait(with_length.ReadBody()), "all");
  EXPECT_EQ(Wait(with_length.ReadBody()).error().code, Code::kClosed);
}

TEST(MessageReader, DrainIsBounded) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
  ScriptedStream stream({head + std::string(1000, 'x') + "GET", head});
  MessageReader reader(&stream, {});
  EXPECT_TRUE(*Wait(reader.ReadHead()));
  EXPECT_TRUE(*Wait(reader.Drain(1000)));
  EXPECT_EQ(reader.buffered(), "GET");
  ScriptedStream more({head, std::string(500, 'x'), std::string(500, 'x')});
  MessageReader bounded(&more, {});
  EXPECT_TRUE(*Wait(bounded.ReadHead()));
  EXPECT_FALSE(*Wait(bounded.Drain(400)));
  ScriptedStream cut({head, "x"});
  MessageReader ended(&cut, {});
  EXPECT_TRUE(*Wait(ended.ReadHead()));
  EXPECT_FALSE(*Wait(ended.Drain(5000)));
}

TEST(MessageReader, ReadAheadKeepsWhatIsThere) {
  ScriptedStream stream({"GET / HTTP/1.1\r\nHost: x\r\n\r\nab", "cd", "ef"});
  MessageReader reader(&stream, {.buffer_bytes = 64});
  EXPECT_TRUE(*Wait(reader.ReadHead()));
  EXPECT_TRUE(Wait(reader.ReadAhead()));
  EXPECT_TRUE(Wait(reader.ReadAhead()));
  EXPECT_EQ(reader.buffered(), "abcdef");
  EXPECT_FALSE(reader.full());
  EXPECT_TRUE(Wait(reader.ReadAhead()));
  EXPECT_TRUE(reader.ended());
}

}  // namespace
}  // namespace sandbar::http
