#include "egress/intercept_reader.h"

#include <algorithm>

namespace sandbar::egress {

Task<> Deadline::Passed() {
  while (Clock::now() < at_) {
    timer_.expires_at(at_);
    co_await timer_.async_wait(kToken);
    auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  }
  co_return Result<>{};
}

Task<size_t> MessageReader::Fill() {
  begin_ = end_ = 0;
  SB_CO_TRY(end_, co_await stream_->ReadSome(buffer_.data(), buffer_.size()));
  deadline_->Touch();
  co_return end_;
}

Task<bool> MessageReader::ReadHead() {
  bool begun = false;
  while (!parser_.head_done()) {
    if (begin_ == end_) {
      SB_CO_TRY(size_t got, co_await Fill());
      if (got == 0 && !begun) co_return false;
      if (got == 0) co_return Fail(Code::kClosed, "the connection was closed in the middle of a head");
    }
    if (!begun) deadline_->StartHead();
    begun = true;
    SB_CO_TRY(size_t used, parser_.Feed(buffered(), nullptr));
    begin_ += used;
  }
  deadline_->StartIdle();
  co_return true;
}

Result<std::string> MessageReader::BufferedBody() {
  std::string piece;
  SB_TRY(size_t used, parser_.Feed(buffered(), &piece));
  begin_ += used;
  return piece;
}

Task<std::string> MessageReader::ReadBody() {
  std::string piece;
  while (!parser_.done() && piece.empty()) {
    size_t got = 1;
    if (begin_ == end_ && parser_.raw_body() >= kBuffer) {
      // Straight into the piece: a large body is copied once.
      piece.resize(static_cast<size_t>(std::min<uint64_t>(parser_.raw_body(), kPiece)));
      SB_CO_TRY(got, co_await stream_->ReadSome(piece.data(), piece.size()));
      deadline_->Touch();
      piece.resize(got);
      parser_.TakeRaw(got);
    } else if (begin_ == end_) {
      SB_CO_TRY(got, co_await Fill());
    }
    if (got == 0) SB_CO_TRYV(parser_.Eof());
    SB_CO_TRY(size_t used, parser_.Feed(buffered(), &piece));
    begin_ += used;
  }
  co_return piece;
}

}  // namespace sandbar::egress
