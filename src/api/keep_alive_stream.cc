#include "api/keep_alive_stream.h"

namespace sandbar::api {
namespace {

// The operators below wait for the first task that does not throw; a pump that threw must not be waited for.
Task<> Guarded(Task<> task) {
  try {
    co_return co_await std::move(task);
  } catch (const std::exception& e) {
    co_return Fail(Code::kInternal, std::string("exception in a stream: ") + e.what());
  }
}

}  // namespace

Task<> KeepAliveStream::Write(std::string bytes) {
  while (busy_) {
    SB_CO_TRYV(co_await free_.Wait());
  }
  busy_ = true;
  auto done = co_await exchange_->Write(std::move(bytes));
  busy_ = false;
  last_ = std::chrono::steady_clock::now();
  free_.Notify();
  co_return done;
}

Task<> KeepAliveStream::Fill() {
  while (true) {
    auto due = last_ + silence_;
    auto now = std::chrono::steady_clock::now();
    if (due > now || busy_) {
      auto pause = due > now ? due - now : std::chrono::steady_clock::duration(silence_);
      SB_CO_TRYV(co_await Sleep(pause));
      continue;
    }
    std::string filler = filler_;
    SB_CO_TRYV(co_await Write(std::move(filler)));
  }
}

Task<> KeepAliveStream::Run(Task<> pump) {
  using namespace asio::experimental::awaitable_operators;
  auto first = co_await (Guarded(std::move(pump)) || Guarded(Fill()) || Guarded(exchange_->WaitClosed()));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  if (first.index() == 1) co_return std::get<1>(std::move(first));
  co_return Fail(Code::kClosed, "the client is gone");
}

}  // namespace sandbar::api
