#include "spawner/server/daemon_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "os/unix_socket.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kMaxOutgoing = 4096;
// So many requests are read in one round. The exits of machines must not wait behind a daemon that asks a lot.
constexpr int kRequestsPerRound = 16;

}  // namespace

ErrorResp ToResponse(const Error& error) {
  return {static_cast<int32_t>(error.code), error.message, error.sys_errno};
}

Result<> DaemonConnection::Listen(int run, uid_t uid, gid_t gid) {
  uid_ = uid;
  SB_TRY(listener_, os::MakeUnixSocket(SOCK_SEQPACKET));
  SB_TRYV(os::BindAndListen(listener_.get(), run, "spawner.sock", 0600, uid, gid));
  SB_TRY(listener_watch_, loop_->TryAdd(listener_.get(), EPOLLIN, [this](uint32_t) { OnAccept(); }));
  return {};
}

void DaemonConnection::OnAccept() {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return;
  auto peer = os::PeerOf(fd.get());
  if (!peer || (peer->uid != uid_ && peer->uid != 0)) {
    log::Warn("refused a connection of uid {}", peer ? static_cast<int64_t>(peer->uid) : -1);
    return;
  }
  if (peer_) Disconnect("replaced by a newer connection");
  auto watch = loop_->TryAdd(fd.get(), EPOLLIN, [this](uint32_t events) { OnPeer(events); });
  if (!watch) return log::Error("{}", watch.error().message);
  peer_ = std::move(fd);
  peer_watch_ = std::move(*watch);
  ++connection_;
  log::Info("daemon connected, pid {}", peer->pid);
}

void DaemonConnection::OnPeer(uint32_t events) {
  if ((events & EPOLLOUT) != 0) Flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read();
}

void DaemonConnection::Read() {
  for (int i = 0; i < kRequestsPerRound && peer_; ++i) {
    auto packet = os::ReceivePacket(peer_.get(), kMaxMessage, false);
    if (!packet) return Disconnect(packet.error().message.c_str());
    if (!packet->has_value()) return;
    auto request = DecodeRequest((*packet)->bytes);
    if (!request) return Disconnect("malformed request");
    on_request_(std::move(*request));
  }
}

void DaemonConnection::Disconnect(const char* why) {
  log::Info("daemon disconnected: {}", why);
  peer_watch_.Reset();
  peer_.Reset();
  out_.clear();
}

void DaemonConnection::Reply(uint32_t tag, Response body, std::vector<Fd> fds) {
  if (!peer_) return;
  if (out_.size() >= kMaxOutgoing) return Disconnect("the daemon does not read its replies");
  TaggedResponse response;
  response.tag = tag;
  response.body = std::move(body);
  out_.push_back(Outgoing{Encode(response), std::move(fds)});
  Flush();
}

void DaemonConnection::ReplyTo(const Owed& owed, Response body) {
  if (Awaits(owed)) Reply(owed.tag, std::move(body));
}

void DaemonConnection::Flush() {
  while (peer_ && !out_.empty()) {
    std::vector<int> fds;
    for (const Fd& fd : out_.front().fds) fds.push_back(fd.get());
    auto sent = os::SendPacket(peer_.get(), out_.front().bytes, fds);
    if (!sent) return Disconnect(sent.error().message.c_str());
    if (!*sent) break;
    out_.pop_front();
  }
  if (peer_) peer_watch_.Set(EPOLLIN | (out_.empty() ? 0U : static_cast<uint32_t>(EPOLLOUT)));
}

}  // namespace sandbar::spawner
