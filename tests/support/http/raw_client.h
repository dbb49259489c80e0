// For the tests of the HTTP server and client: a loop, raw connections, and a certificate made on the spot.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <string>

#include "async/task.h"
#include "wire/http1.h"

namespace sandbar::http {

// Completion of a test's top coroutine.
inline void Rethrow(std::exception_ptr e) {
  if (e) std::rethrow_exception(e);
}

// A client that sends exactly the bytes it is told to.
class RawClient {
 public:
  explicit RawClient(const asio::any_io_executor& ex) : socket_(ex) {}

  Task<> Connect(uint16_t port) {
    const asio::ip::tcp::endpoint endpoint(asio::ip::address_v4::loopback(), port);
    auto [ec] = co_await socket_.async_connect(endpoint, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "connect"));
    co_return Result<>{};
  }
  Task<> Send(std::string bytes) {
    auto buffer = asio::buffer(bytes);
    auto [ec, n] = co_await asio::async_write(socket_, buffer, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "send"));
    co_return Result<>{};
  }
  // Some bytes; empty at the end of the stream (a reset counts as one).
  Task<std::string> ReadSome() {
    std::string out(64 << 10, '\0');
    auto buffer = asio::buffer(out);
    auto [ec, n] = co_await socket_.async_read_some(buffer, kToken);
    if (ec == asio::error::operation_aborted) co_return std::unexpected(FromAsio(ec, "read"));
    out.resize(n);
    co_return out;
  }
  Task<std::string> ReadToEnd() {
    std::string all = std::exchange(pending_, {});
    while (true) {
      SB_CO_TRY(std::string piece, co_await ReadSome());
      if (piece.empty()) co_return all;
      all += piece;
    }
  }
  struct Answer {
    int status = 0;
    std::string body;
    wire::HttpHead head;
  };
  // One whole response; bytes behind it are kept for the next call.
  Task<Answer> ReadAnswer(bool head_only = false) {
    wire::HttpParser parser(wire::HttpKind::kResponse);
    if (head_only) parser.ExpectNoBody();
    Answer out;
    while (!parser.done()) {
      if (pending_.empty()) {
        SB_CO_TRY(pending_, co_await ReadSome());
        if (pending_.empty()) {
          SB_CO_TRYV(parser.Eof());
          break;
        }
      }
      SB_CO_TRY(size_t used, parser.Feed(pending_, &out.body));
      pending_.erase(0, used);
    }
    out.head = parser.head();
    out.status = out.head.status;
    co_return out;
  }
  // Bytes until `text` was seen.
  Task<> ReadUntil(std::string text) {
    while (!pending_.contains(text)) {
      SB_CO_TRY(std::string piece, co_await ReadSome());
      if (piece.empty()) co_return Fail(Code::kClosed, "ended before: " + text);
      pending_ += piece;
    }
    pending_.erase(0, pending_.find(text) + text.size());
    co_return Result<>{};
  }
  void HalfClose() {
    boost::system::error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
  void Close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  asio::ip::tcp::socket& socket() { return socket_; }

 private:
  asio::ip::tcp::socket socket_;
  std::string pending_;
};

// A temporary directory with cert.pem (for `names`, signed by itself) and key.pem.
class TestCertificate {
 public:
  explicit TestCertificate(const char* names = "DNS:localhost,IP:127.0.0.1");
  TestCertificate(const TestCertificate&) = delete;
  TestCertificate& operator=(const TestCertificate&) = delete;
  ~TestCertificate() { std::filesystem::remove_all(dir_); }
  std::string cert() const { return dir_ / "cert.pem"; }
  std::string key() const { return dir_ / "key.pem"; }

 private:
  std::filesystem::path dir_;
};

}  // namespace sandbar::http
