#include "guest/dials.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace sandbar::guest {
namespace {

constexpr uint64_t kGrantStep = 128 << 10;
constexpr size_t kChunk = 64 << 10;

int StartConnect(int fd, uint16_t port, bool ipv6) {
  if (ipv6) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(port);
    to.sin6_addr = in6addr_loopback;
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

protocol::FileErrorKind KindOf(int error) {
  if (error == ECONNREFUSED) return protocol::FileErrorKind::kNotFound;
  return error == ETIMEDOUT ? protocol::FileErrorKind::kTimeout : protocol::FileErrorKind::kOther;
}

}  // namespace

Dials::Dial::~Dial() {
  // A file worker forked just now may still hold the socket; the server must see the end at once.
  if (fd) ::shutdown(fd.get(), SHUT_RDWR);
}

Dials::Dial* Dials::Find(uint32_t id) {
  auto it = dials_.find(id);
  return it == dials_.end() ? nullptr : it->second.get();
}

void Dials::Open(const protocol::Dial& request) {
  if (dials_.size() >= protocol::kMaxDials) return outlet_->Violation("too many dials");
  auto& slot = dials_[request.stream];
  slot = std::make_unique<Dial>();
  slot->id = request.stream;
  slot->port = request.port;
  Connect(*slot);
}

bool Dials::Connect(Dial& d) {
  d.watch.Reset();
  d.fd = Fd(::socket(d.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!d.fd) return Fail(d, errno);
  int on = 1;
  ::setsockopt(d.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (StartConnect(d.fd.get(), d.port, d.ipv6) != 0 && errno != EINPROGRESS) return Fail(d, errno);
  d.watch = loop_->Add(d.fd.get(), EPOLLOUT, [this, &d](uint32_t) { OnReady(d); });
  return true;
}

void Dials::OnReady(Dial& d) {
  if (!d.connected && !Connected(d)) return;
  if (d.connected && Write(d)) Read(d);
}

bool Dials::Connected(Dial& d) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(d.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return Fail(d, error);
  d.connected = true;
  outlet_->Send(protocol::Dialed{d.id});
  return true;
}

bool Dials::Fail(Dial& d, int error) {
  // Servers that bind "localhost" may be on ::1 only.
  if (!d.connected && !d.ipv6 && error == ECONNREFUSED) {
    d.ipv6 = true;
    return Connect(d);
  }
  if (!d.connected && d.ipv6 && (error == EAFNOSUPPORT || error == EADDRNOTAVAIL)) error = ECONNREFUSED;
  outlet_->Send(protocol::FileError{d.id, KindOf(error), std::strerror(error)});
  dials_.erase(d.id);
  return false;
}

bool Dials::Read(Dial& d) {
  std::array<char, kChunk> buffer;
  while (!d.server_ended && d.credit > 0 && !outlet_->full()) {
    ssize_t n = ::read(d.fd.get(), buffer.data(), std::min<uint64_t>(buffer.size(), d.credit));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return Fail(d, errno);
    if (n == 0) {
      d.server_ended = true;
      outlet_->Send(protocol::End{d.id});
      if (!d.shut) break;
      dials_.erase(d.id);
      return false;
    }
    d.credit -= static_cast<uint64_t>(n);
    outlet_->Send(protocol::Data{d.id, std::string(buffer.data(), static_cast<size_t>(n))});
  }
  Arm(d);
  return true;
}

bool Dials::Write(Dial& d) {
  while (d.down_start < d.down.size()) {
    ssize_t n = ::write(d.fd.get(), d.down.data() + d.down_start, d.down.size() - d.down_start);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return Fail(d, errno);
    d.down_start += static_cast<size_t>(n);
    d.granted_later += static_cast<size_t>(n);
  }
  if (d.down_start >= d.down.size() / 2) {
    d.down.erase(0, d.down_start);
    d.down_start = 0;
  }
  if (d.granted_later >= kGrantStep && !d.host_ended) {
    d.window += d.granted_later;
    outlet_->Send(protocol::Credit{d.id, static_cast<uint32_t>(std::exchange(d.granted_later, 0))});
  }
  if (d.host_ended && d.down.empty() && !d.shut) {
    d.shut = true;
    ::shutdown(d.fd.get(), SHUT_WR);
    if (d.server_ended) {
      dials_.erase(d.id);
      return false;
    }
  }
  Arm(d);
  return true;
}

void Dials::Arm(Dial& d) {
  bool read = !d.server_ended && d.credit > 0 && !outlet_->full();
  uint32_t events = read ? static_cast<uint32_t>(EPOLLIN) : 0;
  if (!d.down.empty()) events |= EPOLLOUT;
  d.watch.Set(events);
}

bool Dials::Take(protocol::Data& data) {
  Dial* d = Find(data.stream);
  if (d == nullptr) return false;
  if (!d->connected || d->host_ended || data.bytes.size() > d->window) {
    outlet_->Violation("data that a dial did not ask for");
    return true;
  }
  d->window -= data.bytes.size();
  d->down += data.bytes;
  Write(*d);
  return true;
}

bool Dials::Take(const protocol::End& end) {
  Dial* d = Find(end.stream);
  if (d == nullptr) return false;
  if (!d->connected || std::exchange(d->host_ended, true)) {
    outlet_->Violation("unexpected end of a dial");
    return true;
  }
  Write(*d);
  return true;
}

bool Dials::Take(const protocol::Credit& credit) {
  Dial* d = Find(credit.stream);
  if (d == nullptr) return false;
  d->credit += credit.bytes;
  if (d->credit > protocol::kStreamWindow) {
    outlet_->Violation("too much credit");
    return true;
  }
  if (d->connected) Arm(*d);
  return true;
}

bool Dials::Take(const protocol::Abort& abort) {
  Dial* d = Find(abort.stream);
  if (d == nullptr) return false;
  outlet_->Send(protocol::FileError{d->id, protocol::FileErrorKind::kOther, "aborted"});
  dials_.erase(d->id);
  return true;
}

void Dials::Pump() {
  for (auto& [id, d] : dials_) {
    if (d->connected) Arm(*d);
  }
}

}  // namespace sandbar::guest
