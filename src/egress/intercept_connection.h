// One intercepted connection: ends TLS when asked to, then serves request after request. Each request is decided by
// itself (intercept_request.h) and sent over an upstream connection that belongs to this guest connection alone; its
// response comes back through intercept_response.h. This class connects the two halves. Private to egress/.
// Single loop; lives in the task that runs it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "egress/ca.h"
#include "egress/deadline.h"
#include "egress/intercept.h"
#include "egress/intercept_exchange.h"
#include "egress/intercept_request.h"
#include "egress/intercept_response.h"
#include "http/message_reader.h"
#include "http/socket_stream.h"
#include "http/tls.h"

namespace sandbar::egress {

// What all connections of a machine share; the Interceptor owns it and outlives them.
struct InterceptShared {
  InterceptorOptions options;
  std::unique_ptr<MachineCa> ca;
  http::TlsContext
      upstream_tls;  // made when first needed: most machines never do, and it holds the system's authorities

  // Of the requests whose matchers take long, one is decided at a time: a machine cannot fill the thread that does it.
  struct Turn {
    explicit Turn(const asio::any_io_executor& ex) : freed(ex) {}
    bool taken = false;
    Event freed;
  };
  std::unique_ptr<Turn> turn;
};

// Counts the bytes of a guest's connection, and makes it wait for the machine's bandwidth.
class GuestMeter final : public http::Meter {
 public:
  explicit GuestMeter(EgressState* state) : state_(state) {}
  void OnRead(size_t n) override {
    state_->counters.egress_bytes += n;
    state_->bandwidth.Spend(n);
  }
  void OnWritten(size_t n) override {
    state_->counters.ingress_bytes += n;
    state_->bandwidth.Spend(n);
  }
  bool limited() const override { return state_->bandwidth.limited(); }
  Task<bool> Ready() override { return state_->bandwidth.Ready(); }

 private:
  EgressState* state_;
};

class InterceptConnection {
 public:
  InterceptConnection(InterceptJob job, InterceptShared* shared);
  InterceptConnection(const InterceptConnection&) = delete;
  InterceptConnection& operator=(const InterceptConnection&) = delete;

  Task<> Run();

 private:
  struct Upstream {
    Upstream(std::unique_ptr<http::SocketStream> s, std::string o, Deadline* deadline)
        : stream(std::move(s)),
          origin(std::move(o)),
          reader(stream.get(), {.kind = wire::HttpKind::kResponse, .progress = deadline}) {}
    std::unique_ptr<http::SocketStream> stream;
    std::string origin;
    http::MessageReader reader;
  };

  Task<> Serve();
  Task<> SayTimeout();
  Task<> ShakeHands();
  Task<bool> ServeOne();
  Task<> DecideElsewhere(OrErrorAnswer<AllowedRequest>* allowed);
  Task<bool> Refuse(ErrorAnswer problem);
  Task<bool> Answer(std::string answer);
  Task<bool> Drain();
  bool MayKeepAlive();

  Task<bool> Forward(OutgoingRequest out);
  Task<> Connect(const OutgoingRequest* out);
  Task<Stream> Dial(const OutgoingRequest* out);
  ErrorAnswer Unreachable(const OutgoingRequest& out, const Error& error);
  bool MayReuse(const OutgoingRequest& out) const;
  Task<> Exchange(const OutgoingRequest* out);
  Task<> Pipe();
  static Task<> Pump(http::MessageReader* rest, http::ByteStream* from, http::ByteStream* to, Deadline* deadline);

  RequestContext context() const;

  InterceptJob job_;
  InterceptShared* shared_;
  Deadline deadline_;
  GuestMeter meter_;
  std::unique_ptr<http::SocketStream> guest_;
  std::optional<http::MessageReader> request_;
  std::unique_ptr<Upstream> upstream_;

  bool tls_failed_ = false;     // of the last Connect
  InterceptExchange exchange_;  // of the request being served
};

}  // namespace sandbar::egress
