#include "guest/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/log.h"

namespace sandbar::guest {
namespace {

constexpr size_t kStopReading = 2 << 20;  // answers that the daemon has not taken

}  // namespace

Connection::Connection(Loop& loop, Fd fd, Kind kind, OnFrame on_frame, std::function<void()> on_drained)
    : fd_(std::move(fd)), kind_(kind), on_frame_(std::move(on_frame)), on_drained_(std::move(on_drained)) {
  if (kind_ == Kind::kStream) decoder_.SetStream();
  watch_ = loop.Add(fd_.get(), EPOLLIN, [this](uint32_t events) { OnReady(events); });
}

void Connection::Close() {
  closed_ = true;
  watch_.Reset();
  // A child forked just now may still hold the socket; the peer must see the end at once.
  if (fd_ && kind_ == Kind::kSocket) ::shutdown(fd_.get(), SHUT_RDWR);
  fd_.Reset();
}

void Connection::Refuse() {
  // On a stream nobody sees a close; an answer to nothing is what ends the daemon's side.
  if (kind_ == Kind::kStream) Send(protocol::HelloAck{});
  Close();
}

void Connection::Send(const protocol::GuestFrame& frame) {
  if (closed_) return;
  out_ += kind_ == Kind::kStream ? protocol::EncodeForStream(frame) : protocol::Encode(frame);
  Flush();
}

void Connection::DropQueue() {
  out_.clear();
  out_start_ = 0;
}

void Connection::OnReady(uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    Flush();
    if (!closed_) on_drained_();
  }
  if (!closed_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && queued() < kStopReading) ReadSome();
  DecodeSome();
  Arm();
}

void Connection::ReadSome() {
  std::array<char, 64 << 10> buffer;
  ssize_t n = ::read(fd_.get(), buffer.data(), buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    hung_up_ = true;
    return Close();
  }
  decoder_.Feed(std::string_view(buffer.data(), static_cast<size_t>(n)));
}

void Connection::DecodeSome() {
  protocol::HostFrame frame;
  while (!closed_ && queued() < kStopReading) {
    auto got = decoder_.Next(frame);
    if (!got) {
      log::Warn("daemon connection: {}", got.error().message);
      return Refuse();
    }
    if (!*got) return;
    on_frame_(frame);
  }
}

void Connection::Flush() {
  while (!closed_ && queued() > 0) {
    ssize_t n = ::write(fd_.get(), out_.data() + out_start_, queued());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) return Close();
    out_start_ += static_cast<size_t>(n);
  }
  if (queued() == 0) {
    if (out_.capacity() > kStopReading) std::string().swap(out_);
    out_.clear();
    out_start_ = 0;
  } else if (out_start_ > out_.size() / 2) {
    out_.erase(0, out_start_);
    out_start_ = 0;
  }
  Arm();
}

void Connection::Arm() {
  if (closed_) return;
  uint32_t events = queued() < kStopReading ? static_cast<uint32_t>(EPOLLIN) : 0;
  if (queued() > 0) events |= EPOLLOUT;
  watch_.Set(events);
}

}  // namespace sandbar::guest
