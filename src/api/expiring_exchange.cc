#include "api/expiring_exchange.h"

#include <algorithm>

#include "api/auth.h"
#include "api/errors.h"
#include "base/ids.h"
#include "wire/ndjson.h"

namespace sandbar::api {
namespace {

constexpr int64_t kLongestMs = 365LL * 24 * 3600 * 1000;  // of a wait
constexpr std::chrono::seconds kLastWordsTime{5};
constexpr std::chrono::milliseconds kClocksDiffer{50};  // between the timers' clock and the time of day

}  // namespace

std::chrono::milliseconds CredentialLeft(int64_t expires_at_ms) {
  if (expires_at_ms > NowMs() + kLongestMs) return std::chrono::milliseconds(kLongestMs);
  return std::chrono::milliseconds(std::max<int64_t>(expires_at_ms + kLeewayMs - NowMs(), 0));
}

std::chrono::milliseconds ExpiringExchange::Left() const {
  return CredentialLeft(ends_at_ms_);
}

Error ExpiringExchange::Expired() {
  ended_ = true;
  return Error{Code::kUnauthenticated, std::string(kWhy)};
}

Error ExpiringExchange::Judge(Error error) {
  return error.code == Code::kTimeout && Left() < kClocksDiffer ? Expired() : std::move(error);
}

Task<std::string> ExpiringExchange::ReadBody() {
  auto read = inner_->ReadBody();
  auto piece = co_await WithTimeout(std::move(read), Left());
  if (!piece) co_return std::unexpected(Judge(std::move(piece).error()));
  co_return piece;
}

Task<std::string> ExpiringExchange::ReadAll(size_t limit) {
  auto read = inner_->ReadAll(limit);
  auto body = co_await WithTimeout(std::move(read), Left());
  if (!body) co_return std::unexpected(Judge(std::move(body).error()));
  co_return body;
}

Task<> ExpiringExchange::StartStream(int status, std::string content_type, std::vector<http::Header> headers,
                                     std::optional<uint64_t> content_length) {
  content_type_ = content_type;
  return inner_->StartStream(status, std::move(content_type), std::move(headers), content_length);
}

Task<> ExpiringExchange::Write(std::string bytes) {
  if (Left().count() == 0) co_return std::unexpected(Expired());
  whole_ = false;
  auto write = inner_->Write(std::move(bytes));
  auto done = co_await WithTimeout(std::move(write), Left());
  if (!done) co_return std::unexpected(Judge(std::move(done).error()));
  whole_ = true;
  co_return done;
}

Task<> ExpiringExchange::WaitClosed() {
  while (Left().count() > 0) {
    auto closed = inner_->WaitClosed();
    auto done = co_await WithTimeout(std::move(closed), Left());
    if (done || done.error().code != Code::kTimeout) co_return done;
  }
  ended_ = true;
  co_return Result<>{};
}

Task<> ExpiringExchange::End(std::string last_words) {
  if (last_words.empty() && content_type_ == "application/x-ndjson")
    last_words = wire::ErrorLine(AnswerFor(Code::kUnauthenticated).code, kWhy);
  if (!started() || !whole_ || last_words.empty()) co_return std::unexpected(Expired());
  // A client that does not read does not hold its place for that.
  auto write = inner_->Write(std::move(last_words));
  SB_CO_TRYV(co_await WithTimeout(std::move(write), kLastWordsTime));
  auto finish = inner_->Finish();
  co_return co_await WithTimeout(std::move(finish), kLastWordsTime);
}

}  // namespace sandbar::api
