// One connection of the HTTP client: connects, sends one request at a time, reads its response. Private to http/.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "http/byte_stream.h"
#include "http/client.h"
#include "http/message_reader.h"
#include "http/tls.h"
#include "wire/url.h"

namespace sandbar::http {

// Resolves, connects and shakes hands. `tls` is null for plain TCP. Errors: kUnavailable.
Task<std::unique_ptr<ByteStream>> Dial(wire::Url url, TlsContext tls);

class ClientConnection {
 public:
  ClientConnection(std::unique_ptr<ByteStream> stream, std::string origin)
      : stream_(std::move(stream)),
        origin_(std::move(origin)),
        reader_(stream_.get(), ReaderOptions{.kind = wire::HttpKind::kResponse}) {}

  const std::string& origin() const { return origin_; }
  // The response ended, both sides may go on and nothing is in the way.
  bool reusable() const;
  // Some byte of the present response has arrived.
  bool answered() const { return reader_.parser().head_started() || !reader_.buffered().empty(); }

  // Sends a request and reads the response's head.
  struct Outgoing {
    std::string head;
    std::string body;      // sent behind the head
    BodyProducer produce;  // then this, when set
    bool chunked = false;
    bool head_only = false;  // a HEAD request: the response has no body
  };
  Task<> Exchange(Outgoing request);
  wire::HttpHead& response() { return reader_.head(); }
  // Next piece of the response's body; empty at its end.
  Task<std::string> ReadBody() { return reader_.ReadBody(); }
  bool done() const { return reader_.parser().done(); }

 private:
  Task<> ReadHead();
  Task<> SendRequest();
  Task<> SendPiece(std::string piece);

  std::unique_ptr<ByteStream> stream_;
  std::string origin_;
  MessageReader reader_;
  Outgoing request_;
  bool sent_all_ = false;
  std::optional<Error> producer_error_;
};

}  // namespace sandbar::http
