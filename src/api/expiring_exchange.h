// The exchange of a caller with a credential: streams that the credential opened end with it, when it expires and when
// its key is revoked. Every handler of such a caller gets this exchange in place of the connection's own. Lives in the
// frame of Api::Dispatch.
//
// Then reading a body and writing a stream fail with kUnauthenticated. WaitClosed completes as if the client had gone:
// a handler that cancels work for a client that is gone has to ask Credential::ended() which of the two it was. The
// handler returns, and End() writes the reason in the stream's own format. A call that is only working on its one
// answer is not cut off: it was allowed when it began, and it ends by itself.
#pragma once

#include <optional>
#include <string>

#include "api/credential.h"
#include "http/server.h"

namespace sandbar::api {

class ExpiringExchange final : public http::HttpExchange {
 public:
  // Both outlive it.
  ExpiringExchange(http::HttpExchange* inner, Credential* credential) : inner_(inner), credential_(credential) {}

  // Whether a read, a write or a wait on this exchange ended because the credential had ended.
  bool ended() const { return ended_; }
  // Call it when ended() is true and the handler has returned. Writes `last_words` to the stream, or the default error
  // of the stream's format when `last_words` is empty. A stream whose format has no error is cut, so that the client
  // never takes a part for the whole.
  Task<> End(std::string last_words);

  const http::HttpRequest& request() const override { return inner_->request(); }
  std::string peer() const override { return inner_->peer(); }
  Task<std::string> ReadBody() override;
  Task<std::string> ReadAll(size_t limit) override;
  Task<> Respond(http::HttpResponse response) override { return inner_->Respond(std::move(response)); }
  Task<> StartStream(int status, std::string content_type, std::vector<http::Header> headers,
                     std::optional<uint64_t> content_length) override;
  Task<> Write(std::string bytes) override;
  Task<> Finish() override { return inner_->Finish(); }
  bool started() const override { return inner_->started(); }
  Task<> WaitClosed() override;
  bool wants_upgrade() const override { return inner_->wants_upgrade(); }
  // The handler owns the upgraded stream and has to end it in time itself (Credential::Until).
  Task<http::ByteStream*> Upgrade(std::vector<http::Header> headers) override {
    return inner_->Upgrade(std::move(headers));
  }
  void LimitStalls(std::chrono::seconds limit) override { inner_->LimitStalls(limit); }
  void Vouch() override { inner_->Vouch(); }

 private:
  // Runs a step of the exchange and notes when the credential ended first.
  template <class T>
  Task<T> Step(Task<T> step);

  http::HttpExchange* inner_;
  Credential* credential_;
  std::string content_type_;  // of the stream
  bool whole_ = true;         // no write was left half done
  bool ended_ = false;
};

}  // namespace sandbar::api
