#include "api/expiring_exchange.h"

#include "api/errors.h"
#include "wire/ndjson.h"

namespace sandbar::api {
template <class T>
Task<T> ExpiringExchange::Step(Task<T> step) {
  auto done = co_await credential_->Until(std::move(step));
  if (!done && done.error().code == Code::kUnauthenticated) ended_ = true;
  co_return done;
}

Task<std::string> ExpiringExchange::ReadBody() {
  auto read = inner_->ReadBody();
  co_return co_await Step(std::move(read));
}

Task<std::string> ExpiringExchange::ReadAll(size_t limit) {
  auto read = inner_->ReadAll(limit);
  co_return co_await Step(std::move(read));
}

Task<> ExpiringExchange::StartStream(int status, std::string content_type, std::vector<http::Header> headers,
                                     std::optional<uint64_t> content_length) {
  content_type_ = content_type;
  return inner_->StartStream(status, std::move(content_type), std::move(headers), content_length);
}

Task<> ExpiringExchange::Write(std::string bytes) {
  if (credential_->ended()) {
    ended_ = true;
    co_return std::unexpected(credential_->Refusal());
  }
  whole_ = false;
  auto write = inner_->Write(std::move(bytes));
  SB_CO_TRYV(co_await Step(std::move(write)));
  whole_ = true;
  co_return Result<>{};
}

Task<> ExpiringExchange::WaitClosed() {
  auto wait = inner_->WaitClosed();
  auto closed = co_await Step(std::move(wait));
  if (ended_) co_return Result<>{};
  co_return closed;
}

Task<> ExpiringExchange::End(std::string last_words) {
  if (last_words.empty() && content_type_ == "application/x-ndjson")
    last_words = wire::ErrorLine(AnswerFor(Code::kUnauthenticated).code, credential_->Why());
  if (!started() || !whole_ || last_words.empty()) co_return std::unexpected(credential_->Refusal());
  // A client that does not read does not hold its place for that.
  auto write = inner_->Write(std::move(last_words));
  SB_CO_TRYV(co_await WithTimeout(std::move(write), kLastWordsTime));
  auto finish = inner_->Finish();
  co_return co_await WithTimeout(std::move(finish), kLastWordsTime);
}

}  // namespace sandbar::api
