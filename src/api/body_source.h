// A request's body as bytes that the domain pulls: nothing is collected here. Loop thread; lives in the handler's
// frame.
#pragma once

#include <cstdint>
#include <string>

#include "http/server.h"
#include "sandbox/files/files.h"

namespace sandbar::api {

class BodySource final : public engine::ByteSource {
 public:
  explicit BodySource(http::HttpExchange* exchange) : exchange_(exchange) {}
  Task<std::string> Next() override {
    SB_CO_TRY(std::string bytes, co_await exchange_->ReadBody());
    bytes_ += bytes.size();
    co_return bytes;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  http::HttpExchange* exchange_;
  uint64_t bytes_ = 0;
};

}  // namespace sandbar::api
