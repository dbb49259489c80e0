#include "guest/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/log.h"

namespace sandbar::guest {
namespace {

constexpr size_t kStopReading = 2 << 20;  // answers that the daemon has not taken

}  // namespace

Connection::Connection(Loop& loop, Fd fd, OnFrame on_frame, std::function<void()> on_drained)
    : fd_(std::move(fd)), on_frame_(std::move(on_frame)), on_drained_(std::move(on_drained)) {
  watch_ = loop.Add(fd_.get(), EPOLLIN, [this](uint32_t events) { OnReady(events); });
}

void Connection::Close() {
  closed_ = true;
  watch_.Reset();
  // A child forked just now may still hold the socket; the peer must see the end at once.
  if (fd_) ::shutdown(fd_.get(), SHUT_RDWR);
  fd_.Reset();
}

void Connection::Send(const wire::GuestFrame& frame) {
  if (closed_) return;
  out_ += wire::Encode(frame);
  Flush();
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
  ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return Close();
  decoder_.Feed(std::string_view(buffer.data(), static_cast<size_t>(n)));
}

void Connection::DecodeSome() {
  wire::HostFrame frame;
  while (!closed_ && queued() < kStopReading) {
    auto got = decoder_.Next(frame);
    if (!got) {
      log::Warn("daemon connection: {}", got.error().message);
      return Close();
    }
    if (!*got) return;
    on_frame_(frame);
  }
}

void Connection::Flush() {
  while (!closed_ && queued() > 0) {
    ssize_t n = ::send(fd_.get(), out_.data() + out_start_, queued(), MSG_DONTWAIT | MSG_NOSIGNAL);
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
