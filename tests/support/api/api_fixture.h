// For tests: the real HTTP server on loopback with an Api over a FakeDomain, on its own thread; and a blocking client
// that sees the bytes as they come.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/json.hpp>
#include <future>
#include <map>
#include <sstream>
#include <thread>

#include "api/api.h"
#include "api/auth.h"
#include "base/fd.h"
#include "base/ids.h"
#include "support/api/fake_domain.h"
#include "wire/text.h"

namespace sandbar::api {

inline const std::string kTestKey(32, 'k');

inline std::string Base64Url(std::string_view in) {
  std::string out(4 * ((in.size() + 2) / 3) + 1, '\0');
  int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                          reinterpret_cast<const unsigned char*>(in.data()), static_cast<int>(in.size()));
  out.resize(static_cast<size_t>(n));
  while (out.ends_with('=')) out.pop_back();
  for (char& c : out) c = c == '+' ? '-' : (c == '/' ? '_' : c);
  return out;
}

// A token that any header and payload can be put into, correctly signed with `key`.
inline std::string Forge(std::string_view header, std::string_view payload, std::string_view key = kTestKey) {
  std::string text = Base64Url(header) + "." + Base64Url(payload);
  unsigned char mac[32];
  unsigned size = sizeof mac;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), mac, &size);
  return text + "." + Base64Url({reinterpret_cast<const char*>(mac), size});
}

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;
  std::string Get(const std::string& name) const {
    auto it = headers.find(name);
    return it == headers.end() ? "" : it->second;
  }
  boost::json::object Json() const { return boost::json::parse(body).as_object(); }
  std::string Code() const { return std::string(Json().at("error").at("code").as_string()); }
  std::string Message() const { return std::string(Json().at("error").at("message").as_string()); }
};

// One connection. Every read gives up after a while instead of hanging the suite.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), port_(port) {
    timeval timeout{60, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  void Close() { fd_.Reset(); }
  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  // Sends a request with Host and, unless `extra` has an Authorization, the good token.
  void Request(const std::string& method, const std::string& path, const std::string& body = "",
               const std::string& extra = "") {
    std::string head = method + " " + path + " HTTP/1.1\r\n";
    if (!extra.contains("Host:")) head += "Host: 127.0.0.1:" + std::to_string(port_) + "\r\n";
    if (!extra.contains("Authorization")) head += "Authorization: Bearer good\r\n";
    if (!extra.contains("Content-Type")) head += "Content-Type: application/json\r\n";
    Send(head + "Content-Length: " + std::to_string(body.size()) + "\r\n" + extra + "\r\n" + body);
  }
  Answer ReadHead() {
    size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos && Fill()) {
    }
    if (end == std::string::npos) return {};
    Answer answer;
    std::istringstream lines(buffer_.substr(0, end));
    buffer_.erase(0, end + 4);
    std::string line;
    std::getline(lines, line);
    answer.status = std::atoi(line.c_str() + 9);
    while (std::getline(lines, line)) {
      size_t colon = line.find(": ");
      std::string name = line.substr(0, colon);
      for (char& c : name) c = wire::AsciiLower(c);
      answer.headers[name] = std::string(wire::Trim(line.substr(colon + 2, line.find('\r') - colon - 2)));
    }
    return answer;
  }
  // One chunk of a chunked body; empty at its end or when the connection was cut (then cut() is true).
  std::string ReadChunk() {
    std::string size_line = Take([&] {
      size_t eol = buffer_.find("\r\n");
      return eol == std::string::npos ? eol : eol + 2;
    });
    if (cut_) return "";
    size_t size = std::stoul(size_line, nullptr, 16);
    std::string chunk = Take([&] { return buffer_.size() < size + 2 ? std::string::npos : size + 2; });
    chunk.resize(std::min(size, chunk.size()));
    return chunk;
  }
  Answer ReadAnswer(bool head_only = false) {
    Answer answer = ReadHead();
    if (answer.Get("transfer-encoding") == "chunked") {
      for (std::string chunk = ReadChunk(); !chunk.empty(); chunk = ReadChunk()) answer.body += chunk;
    } else if (!head_only && !answer.Get("content-length").empty()) {
      size_t size = std::stoul(answer.Get("content-length"));
      answer.body = Take([&] { return buffer_.size() < size ? std::string::npos : size; });
    }
    return answer;
  }
  bool cut() const { return cut_; }
  // True when the server closes without another byte.
  bool AtEnd() { return buffer_.empty() && !Fill(); }

 private:
  bool Fill() {
    char piece[16384];
    ssize_t n = ::recv(fd_.get(), piece, sizeof piece, 0);
    if (n <= 0) return false;
    buffer_.append(piece, static_cast<size_t>(n));
    return true;
  }
  template <class F>
  std::string Take(F length) {
    size_t n = 0;
    while ((n = length()) == std::string::npos) {
      if (!Fill()) {
        cut_ = true;
        return "";
      }
    }
    std::string out = buffer_.substr(0, n);
    buffer_.erase(0, n);
    return out;
  }
  Fd fd_;
  uint16_t port_;
  std::string buffer_;
  bool cut_ = false;
};

class ApiFixture : public ::testing::Test {
 protected:
  ApiFixture() : guard_(asio::make_work_guard(io_)), domain_(io_.get_executor()) {
    domain_.AddKey("good");
    config_.jwt_key = kTestKey;
    config_.version = "1.2.3";
    config_.register_mjs = "console.log('hook')\n";
  }
  // Tests that need another configuration change config_ before the first request.
  void Start() {
    api_ = std::make_unique<Api>(&domain_.roles(), &catalog_, config_);
    auto handler = [this](http::HttpExchange* x) { return api_->Handle(x); };
    auto on_error = [this](const Error& e) { return api_->OnError(e); };
    auto server = http::ListenHttp(io_.get_executor(), "127.0.0.1", 0, {}, handler, on_error);
    ASSERT_TRUE(server.has_value());
    server_ = *std::move(server);
    api_->SetPort(server_->port());
    thread_ = std::thread([this] { io_.run(); });
  }
  ~ApiFixture() override {
    if (!thread_.joinable()) return;
    asio::co_spawn(io_, server_->Close(), asio::use_future).get();
    asio::co_spawn(io_, api_->Close(), asio::use_future).get();
    guard_.reset();
    thread_.join();
  }
  Client Connect() {
    if (!server_) Start();
    return Client(server_->port());
  }
  Answer Ask(const std::string& method, const std::string& path, const std::string& body = "",
             const std::string& extra = "") {
    Client client = Connect();
    client.Request(method, path, body, extra);
    return client.ReadAnswer(method == "HEAD");
  }
  // Runs `f` on the loop and returns what it returns.
  template <class F>
  auto OnLoop(F f) {
    return asio::post(io_, asio::use_future(std::move(f))).get();
  }
  // Waits until something on the loop is so; the suite's own time limit ends a test where it never becomes so.
  template <class F>
  void Until(F f) {
    while (!OnLoop(f)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::string Host(const std::string& name) {
    if (!server_) Start();
    return "Host: " + name + ":" + std::to_string(server_->port()) + "\r\n";
  }

  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  FakeDomain domain_;
  images::Catalog catalog_{"/nonexistent"};
  ApiConfig config_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<http::HttpServer> server_;
  std::thread thread_;
};

}  // namespace sandbar::api
