#include "engine/guest_link/core.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "base/ids.h"
#include "protocol/vm_config.h"

namespace sandbar::engine {
namespace {

constexpr size_t kMaxSaid = 300;
constexpr int kMaxRestarts = 64;  // of looking for the answer to the hello
// What may come before the answer: whatever the agent and everybody between had on the way to an earlier daemon.
constexpr size_t kMaxBeforeHello = 64 << 20;

}  // namespace

LinkCore::LinkCore(asio::local::stream_protocol::socket socket, GuestEvents* events, LinkDeadlines limits)
    : socket_(std::move(socket)),
      executor_(socket_.get_executor()),
      events_(events),
      limits_(limits),
      writable_(executor_),
      unfinished_(executor_) {}

Error LinkCore::Unavailable() const {
  std::string why = closed_ ? closed_->message : "closed";
  return Error{Code::kUnavailable, "connection to the machine ended: " + why};
}

Result<> LinkCore::Require(const protocol::Feature& feature) const {
  if (version_ >= feature.since) return {};
  return Fail(Code::kConflict, std::string("the sandbox's agent is of an earlier release and cannot ") + feature.what +
                                   "; stop and resume the sandbox, then try again");
}

void LinkCore::Shut(Error why) {
  if (closed_) return;
  closed_ = std::move(why);
  boost::system::error_code ignored;
  socket_.close(ignored);
  for (auto& [id, c] : commands) {
    if (c.starting == nullptr) continue;
    c.starting->result = std::unexpected(Unavailable());
    std::exchange(c.starting, nullptr)->waiter.Notify();
  }
  for (auto& [id, c] : commands) {
    if (c.input) c.input->changed->NotifyAll();
  }
  for (auto& [id, s] : streams_) s->Notify();
  streams_.clear();
  if (quiesce != nullptr) quiesce->waiter.Notify();
  if (rekeying != nullptr) rekeying->Notify();
  out_.clear();
  writable_.Notify();
  unfinished_.Notify();
  room_.NotifyAll();
  slots_.NotifyAll();
}

void LinkCore::ShutByOwner() {
  by_owner_ = true;
  Shut(Error{Code::kCancelled, "closed by its owner"});
}

void LinkCore::Send(const protocol::HostFrame& frame) {
  if (closed_) return;
  out_ += decoder_.stream() ? protocol::EncodeForStream(frame) : protocol::Encode(frame);
  writable_.Notify();
  if (out_.size() > kQueueLimit) Shut(Error{Code::kProtocol, "the agent reads nothing"});
}

Task<> LinkCore::WaitRoom(LinkClock::time_point deadline) {
  while (!closed_ && out_.size() > kQueueRoom) {
    SB_CO_TRYV(co_await room_.Wait(deadline));
  }
  if (closed_) co_return std::unexpected(Unavailable());
  co_return Result<>{};
}

bool LinkCore::HeardSince(LinkClock::time_point when) const {
  boost::system::error_code ignored;
  // A machine that stands still by the daemon's own wish cannot answer.
  return paused_ > 0 || heard_ > when || socket_.available(ignored) > 0;
}

Task<> LinkCore::Handshake(std::string key) {
  protocol::Hello hello;
  hello.oldest = protocol::GuestVersions().oldest;
  hello.newest = protocol::GuestVersions().newest;
  FillRandom(&hello.nonce, sizeof hello.nonce);
  hello.nonce &= 0xfefefefefefefefe;  // no byte of it looks like an escape, should this be a stream
  std::string bytes = protocol::Encode(hello);
  auto buffer = asio::buffer(bytes);
  auto [write_error, written] = co_await asio::async_write(socket_, buffer, kToken);
  if (write_error) co_return std::unexpected(FromAsio(write_error, "hello"));
  int restarts = 0;
  std::string said;
  size_t before = 0;
  for (;;) {
    auto [ec, n] = co_await socket_.async_read_some(asio::buffer(buffer_), kToken);
    if (ec && said.starts_with(protocol::kVmFailure))
      co_return Fail(Code::kUnavailable, "the machine did not start: " + said);
    if (ec) co_return std::unexpected(FromAsio(ec, "hello"));
    for (size_t i = 0; i < n && said.size() < kMaxSaid; ++i)
      said += buffer_[i] < ' ' || buffer_[i] > '~' ? '?' : buffer_[i];
    before += n;
    if (before > kMaxBeforeHello) co_return Fail(Code::kProtocol, "the agent talks without an answer to the hello");
    decoder_.Feed(std::string_view(buffer_.data(), n));
    protocol::GuestFrame frame;
    for (;;) {
      auto got = decoder_.Next(frame);
      if (got && !*got) break;
      auto* ack = got ? std::get_if<protocol::HelloAck>(&frame) : nullptr;
      if (ack == nullptr || ack->nonce != hello.nonce) {
        // The rest of an earlier conversation, on a channel that does not know where one ends. It has no more than a
        // few beginnings, and looking for the next one costs a copy of all that is there.
        if (++restarts > kMaxRestarts) co_return Fail(Code::kProtocol, "the agent's answer to the hello does not come");
        decoder_.Resync();
        continue;
      }
      version_ = protocol::HighestCommon(protocol::GuestVersions(), ack->versions());
      if (version_ == 0)
        co_return Fail(Code::kProtocol, "the agent speaks " + Describe(ack->versions()) +
                                            " of the protocol, the server " + Describe(protocol::GuestVersions()));
      if (!key.empty() && ack->machine_key != key)
        co_return Fail(Code::kProtocol, "the agent that answers is not the one that was configured for this machine");
      for (const auto& c : ack->commands) {
        auto [it, fresh] = commands.try_emplace(c.id);
        if (!fresh) co_return Fail(Code::kProtocol, "the agent names a command twice");
        it->second.running = true;
        it->second.produced = c.produced;
      }
      known = std::move(ack->commands);
      SB_CO_TRYV(TakeStdins(std::move(ack->stdins)));
      decoder_.ForbidMagic();
      co_return Result<>{};
    }
  }
}

Task<> LinkCore::ReadLoop() {
  // One turn later: whoever awaits OpenGuestLink holds the link before the first event.
  co_await asio::post(executor_, kToken);
  while (!closed_) {
    protocol::GuestFrame frame;
    auto got = decoder_.Next(frame);
    if (got && *got) {
      auto done = Dispatch(frame);
      if (!done) Shut(std::move(done).error());
      continue;
    }
    if (!got) {
      Shut(std::move(got).error().Context("the agent broke the protocol"));
      break;
    }
    heard_ = LinkClock::now();
    if (decoder_.incomplete() && !std::exchange(watching_, true)) unfinished_.Notify();
    auto [ec, n] = co_await socket_.async_read_some(asio::buffer(buffer_), kToken);
    if (ec) {
      Shut(FromAsio(ec, "read from the agent"));
    } else {
      decoder_.Feed(std::string_view(buffer_.data(), n));
    }
  }
  if (!by_owner_) events_->OnClosed(*closed_);
  co_return Result<>{};
}

Task<> LinkCore::WatchFrames() {
  while (!closed_) {
    watching_ = false;
    SB_CO_TRYV(co_await unfinished_.Wait(LinkClock::time_point::max()));
    watching_ = true;
    while (!closed_ && decoder_.incomplete()) {
      boost::system::error_code ignored;
      // Nobody is to blame while the machine stands still, nor when it was we who did not look.
      if (paused_ > 0 || socket_.available(ignored) > 0) heard_ = LinkClock::now();
      if (LinkClock::now() >= heard_ + limits_.frame) {
        Shut(Error{Code::kProtocol, "the agent broke the protocol: it began a frame that does not end"});
        break;
      }
      auto woken = co_await unfinished_.Wait(heard_ + limits_.frame);
      if (!woken && woken.error().code == Code::kCancelled) co_return woken;
    }
  }
  co_return Result<>{};
}

Task<> LinkCore::WriteLoop() {
  while (!closed_) {
    if (out_.empty()) {
      auto woken = co_await writable_.Wait(LinkClock::time_point::max());
      if (!woken) co_return woken;
      continue;
    }
    writing_.swap(out_);
    auto buffer = asio::buffer(writing_);
    auto [ec, n] = co_await asio::async_write(socket_, buffer, kToken);
    writing_.clear();
    if (writing_.capacity() > kQueueRoom) writing_.shrink_to_fit();
    if (ec) Shut(FromAsio(ec, "write to the agent"));
    room_.NotifyAll();
  }
  co_return Result<>{};
}

}  // namespace sandbar::engine
