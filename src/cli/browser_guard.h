// A local connection of `sandbar forward`, watched for browsers. Cookies ignore ports: a page that a browser loads from
// http://127.0.0.1:3000 gets and sets the cookies of everything else on 127.0.0.1, the API included. So a browser that
// names one of loopback's own names is sent to a name that belongs to this sandbox's port alone, and the guest never
// sees that request. Everything else passes untouched: other programs, other protocols, servers that speak first.
// Single loop.
//
//   BrowserGuard local(MakeTcpStream(…), ForwardName(session, 3000) + ":3000");
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "http/byte_stream.h"

namespace sandbar::cli {

// "forward-….localhost": always the same for one port of one sandbox, and no other's.
std::string ForwardName(std::string_view sandbox, int port);

// The answer to a browser that began a connection with these bytes. Empty: no browser, the bytes may pass. Nothing:
// more bytes are needed.
std::optional<std::string> AnswerToBrowser(std::string_view bytes, const std::string& authority);

class BrowserGuard final : public http::ByteStream {
 public:
  // `authority`: where browsers are sent, "name:port".
  BrowserGuard(std::unique_ptr<http::ByteStream> stream, std::string authority)
      : stream_(std::move(stream)), authority_(std::move(authority)) {}
  Task<> Handshake() override { return stream_->Handshake(); }
  Task<size_t> ReadSome(char* data, size_t n) override;
  Task<> WriteAll(http::Pieces pieces) override { return stream_->WriteAll(pieces); }
  Task<> Linger(size_t max_bytes) override { return stream_->Linger(max_bytes); }
  bool ShutdownSend() override { return stream_->ShutdownSend(); }
  void Close() override { stream_->Close(); }
  int fd() const override { return stream_->fd(); }

 private:
  // Reads until it is clear what the client is; false: a browser, which has been told.
  Task<bool> Decide();

  std::unique_ptr<http::ByteStream> stream_;
  std::string authority_;
  std::string early_;
  bool decided_ = false;
};

}  // namespace sandbar::cli
