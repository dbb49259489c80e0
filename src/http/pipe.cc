#include "http/pipe.h"

#include "async/cancelled.h"

namespace sandbar::http {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPiece = 64 << 10;

class Pipe {
 public:
  Pipe(const asio::any_io_executor& ex, ByteStream* a, ByteStream* b, std::chrono::seconds idle)
      : a_(a), b_(b), idle_(idle), stop_(ex) {}

  Task<> Run(std::string first) {
    using namespace asio::experimental::awaitable_operators;
    auto there = Copy(a_, b_, "");
    auto back = Copy(b_, a_, std::move(first));
    auto ended = co_await ((std::move(there) && std::move(back)) || Watch() || stop_.Wait());
    if (ended.index() == 1) co_return Fail(Code::kTimeout, "nothing was sent for a long time");
    co_return outcome_;
  }

 private:
  // When one direction breaks, the other has nobody to speak for.
  Task<> Copy(ByteStream* from, ByteStream* to, std::string first) {
    co_await asio::this_coro::throw_if_cancelled(false);
    auto copied = co_await CopyAll(from, to, std::move(first));
    if (!copied && outcome_) outcome_ = copied;
    if (!copied || !to->ShutdownSend()) stop_.Notify();
    co_return copied;
  }

  Task<> CopyAll(ByteStream* from, ByteStream* to, std::string first) {
    std::string piece = std::move(first);
    size_t n = piece.size();
    piece.resize(std::max(n, kPiece));
    while (true) {
      if (n != 0) {
        Pieces out{std::string_view(piece).substr(0, n)};
        SB_CO_TRYV(co_await to->WriteAll(out));
        moved_ = Clock::now();
      }
      SB_CO_TRYV(co_await CheckCancelled());
      SB_CO_TRY(n, co_await from->ReadSome(piece.data(), piece.size()));
      if (n == 0) co_return Result<>{};
      moved_ = Clock::now();
    }
  }

  Task<> Watch() {
    while (true) {
      const auto left = moved_ + idle_ - Clock::now();
      if (left <= Clock::duration::zero()) co_return Result<>{};
      SB_CO_TRYV(co_await Sleep(left));
    }
  }

  ByteStream* a_;
  ByteStream* b_;
  std::chrono::seconds idle_;
  Clock::time_point moved_ = Clock::now();
  Result<> outcome_;
  Event stop_;
};

}  // namespace

Task<> PipeStreams(ByteStream* a, ByteStream* b, std::string first, std::chrono::seconds idle) {
  auto ex = co_await asio::this_coro::executor;
  Pipe pipe(ex, a, b, idle);
  co_return co_await pipe.Run(std::move(first));
}

}  // namespace sandbar::http
