// An exchange whose caller's credential ends at a known time: what the credential opened ends with it. Every handler of
// such a caller talks through this one, so none has to look at the clock. Lives in the frame of Api::Dispatch.
//
// At that time a body that is being read or a stream that is being written fails with kUnauthenticated, and WaitClosed
// completes as if the client had gone. The handler returns then, and End() says why in the stream's own format. A call
// that only works on its one answer is not cut off: it was allowed when it began, and it ends by itself.
#pragma once

#include <optional>
#include <string>

#include "net/http_server.h"

namespace sandbar::api {

class ExpiringExchange final : public net::HttpExchange {
 public:
  ExpiringExchange(net::HttpExchange* inner, int64_t ends_at_ms) : inner_(inner), ends_at_ms_(ends_at_ms) {}

  static constexpr std::string_view kWhy = "the token that opened this has expired; get another one and ask again";

  // The credential's end has ended something here.
  bool ended() const { return ended_; }
  // Once that is so and the handler has returned. `last_words`: what ends the stream instead of its format's usual
  // error. A stream whose format has none is cut, so that a part is never taken for the whole.
  Task<> End(std::string last_words);

  const net::HttpRequest& request() const override { return inner_->request(); }
  std::string peer() const override { return inner_->peer(); }
  Task<std::string> ReadBody() override;
  Task<std::string> ReadAll(size_t limit) override;
  Task<> Respond(net::HttpResponse response) override { return inner_->Respond(std::move(response)); }
  Task<> StartStream(int status, std::string content_type, std::vector<net::Header> headers,
                     std::optional<uint64_t> content_length) override;
  Task<> Write(std::string bytes) override;
  Task<> Finish() override { return inner_->Finish(); }
  bool started() const override { return inner_->started(); }
  Task<> WaitClosed() override;
  bool wants_upgrade() const override { return inner_->wants_upgrade(); }
  // The stream is the handler's: it has to end it in time (Left).
  Task<net::ByteStream*> Upgrade(std::vector<net::Header> headers) override {
    return inner_->Upgrade(std::move(headers));
  }
  void LimitStalls(std::chrono::seconds limit) override { inner_->LimitStalls(limit); }
  void Vouch() override { inner_->Vouch(); }

 private:
  std::chrono::milliseconds Left() const;
  Error Expired();
  // The error of something that was given Left() to finish.
  Error Judge(Error error);

  net::HttpExchange* inner_;
  int64_t ends_at_ms_;
  std::string content_type_;  // of the stream
  bool whole_ = true;         // no write was left half done
  bool ended_ = false;
};

// How long a credential lasts from now on, with the leeway that it is given.
std::chrono::milliseconds CredentialLeft(int64_t expires_at_ms);

}  // namespace sandbar::api
