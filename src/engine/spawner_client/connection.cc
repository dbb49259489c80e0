#include "engine/spawner_client/connection.h"

#include <unistd.h>

#include "base/log.h"
#include "os/unix_socket.h"

namespace sandbar::engine {
namespace {

constexpr size_t kMaxQueued = 10'000;

Error FromSpawner(const protocol::ErrorResp& e) {
  // A newer spawner may have codes that this server does not know.
  bool known = e.code >= 0 && e.code <= static_cast<int32_t>(kLastCode);
  if (e.sys_errno == ENOSPC) return Error{Code::kNoSpace, "the server's disk is full: " + e.message, e.sys_errno};
  // A full server is refused before anything is tried, so this is the sandbox's own limit or its project's.
  if (e.sys_errno == EDQUOT)
    return Error{Code::kQuota, "a disk limit is used up: " + e.message + "; delete something and try again",
                 e.sys_errno};
  return Error{known ? static_cast<Code>(e.code) : Code::kInternal, e.message, e.sys_errno};
}

}  // namespace

Connection::Connection(const asio::any_io_executor& ex, Fd socket) : ex_(ex), socket_(ex, socket.Release()) {}

Result<std::shared_ptr<Connection>> Connection::Open(const asio::any_io_executor& ex, const std::string& path) {
  auto socket = os::ConnectUnixPath(path, SOCK_SEQPACKET);
  if (!socket) {
    Error e = std::move(socket).error();
    e.code = Code::kUnavailable;
    return std::unexpected(std::move(e).Context("the spawner does not answer"));
  }
  // Its fds are taken on trust, so it must be root's, or our own in tests without privileges.
  SB_TRY(auto peer, os::PeerOf(socket->get()));
  if (peer.uid != 0 && peer.uid != ::geteuid())
    return Fail(Code::kForbidden, "the spawner's socket is somebody else's");
  auto connection = std::make_shared<Connection>(ex, std::move(*socket));
  connection->Receive();
  return connection;
}

void Connection::Receive() {
  auto self = shared_from_this();
  socket_.async_wait(asio::posix::stream_descriptor::wait_read, [self](const boost::system::error_code& ec) {
    if (ec) return self->Close(ec.message());
    self->OnReadable();
  });
}

void Connection::OnReadable() {
  for (int i = 0; i < 64 && closed_.empty(); ++i) {
    auto packet = os::ReceivePacket(socket_.native_handle(), protocol::kMaxSpawnerMessage, true);
    if (!packet) return Close(packet.error().message);
    if (!packet->has_value()) break;
    auto response = protocol::DecodeResponse((*packet)->bytes);
    if (!response) return Close(response.error().message);
    OnResponse(std::move(*response), std::move((*packet)->fds));
  }
  if (closed_.empty()) Receive();
}

void Connection::OnResponse(protocol::TaggedResponse response, std::vector<Fd> fds) {
  if (response.tag == 0) {
    auto* event = std::get_if<protocol::ExitedEvent>(&response.body);
    auto it = event == nullptr ? exits_.end() : exits_.find(event->machine);
    if (it == exits_.end()) return;
    if (auto state = it->second.lock()) {
      state->exited = *event;
      state->changed.Notify();
    }
    return;
  }
  auto it = pending_.find(response.tag);
  if (it == pending_.end()) return;  // its caller gave up; the fds close here
  if (auto* e = std::get_if<protocol::ErrorResp>(&response.body)) {
    it->second->result = std::unexpected(FromSpawner(*e));
  } else {
    it->second->result = SpawnerReply{std::move(response.body), std::move(fds)};
  }
  it->second->wake.cancel();
  pending_.erase(it);
}

Task<SpawnerReply> Connection::Call(protocol::SpawnerRequest request, std::chrono::seconds limit) {
  auto self = shared_from_this();  // the engine may be dropped while we wait
  if (!closed_.empty()) co_return Fail(Code::kUnavailable, "the spawner is gone: " + closed_);
  if (out_.size() >= kMaxQueued) co_return Fail(Code::kUnavailable, "the spawner does not keep up");
  uint32_t tag = next_tag_++;
  if (next_tag_ == 0) next_tag_ = 1;
  auto pending = std::make_shared<Pending>(ex_);
  pending_[tag] = pending;
  protocol::TaggedRequest tagged;
  tagged.tag = tag;
  tagged.body = std::move(request);
  out_.push_back(Encode(tagged));
  Flush();
  pending->wake.expires_after(limit);
  boost::system::error_code ec;
  if (!pending->result) {
    auto [waited] = co_await pending->wake.async_wait(kToken);
    ec = waited;
  }
  if (pending->result) co_return std::move(*pending->result);
  pending_.erase(tag);
  if (!ec) co_return Fail(Code::kTimeout, "the spawner does not answer");
  co_return Fail(Code::kCancelled, "cancelled");
}

Task<protocol::HelloResp> Connection::Hello() {
  const protocol::VersionRange ours = protocol::SpawnerVersions();
  for (uint32_t version = ours.newest;; --version) {
    protocol::HelloReq hello;
    hello.version = version;
    protocol::SpawnerRequest request = hello;
    auto answer = co_await Call(std::move(request));
    if (answer) {
      auto* accepted = std::get_if<protocol::HelloResp>(&answer->body);
      if (accepted == nullptr) co_return Fail(Code::kProtocol, "unexpected answer of the spawner");
      version_ = version;
      if (version < ours.newest)
        log::Warn(
            "the spawner is of an earlier release (version {} of its protocol): it and its machines go on; "
            "`sandbar down` ends them, and the next start has all of this release",
            version);
      co_return std::move(*accepted);
    }
    if (answer.error().code != Code::kUnsupported) co_return std::unexpected(std::move(answer).error());
    if (version == ours.oldest)
      co_return Fail(Code::kUnsupported, "this server speaks " + Describe(ours) + " of the spawner's protocol, but " +
                                             answer.error().message +
                                             ": start the release that started the spawner, or end its machines with "
                                             "`sandbar down`");
  }
}

Result<> Connection::Require(const protocol::Feature& feature) const {
  if (version_ >= feature.since) return {};
  return Fail(Code::kConflict, std::string("the spawner is of an earlier release and cannot ") + feature.what +
                                   "; stop all sandboxes (sandbar down), start the server again, then try again");
}

void Connection::Flush() {
  while (closed_.empty() && !out_.empty()) {
    auto sent = os::SendPacket(socket_.native_handle(), out_.front(), {});
    if (!sent) return Close(sent.error().message);
    if (!*sent) break;
    out_.pop_front();
  }
  if (!closed_.empty() || out_.empty() || writing_) return;
  writing_ = true;
  auto self = shared_from_this();
  socket_.async_wait(asio::posix::stream_descriptor::wait_write, [self](const boost::system::error_code& ec) {
    self->writing_ = false;
    if (!ec) self->Flush();
  });
}

std::shared_ptr<ExitState> Connection::Track(const std::string& machine) {
  std::erase_if(exits_, [](const auto& e) { return e.second.expired(); });
  auto& known = exits_[machine];
  if (auto state = known.lock()) return state;
  auto state = std::make_shared<ExitState>(ex_);
  state->lost = !closed_.empty();
  known = state;
  return state;
}

void Connection::MarkExited(const std::string& machine) {
  auto it = exits_.find(machine);
  auto state = it == exits_.end() ? nullptr : it->second.lock();
  if (!state || state->exited) return;
  state->exited = protocol::ExitedEvent{machine, 137, false};
  state->changed.Notify();
}

void Connection::Close(std::string why) {
  if (!closed_.empty()) return;
  closed_ = why.empty() ? "closed" : std::move(why);
  boost::system::error_code ignored;
  socket_.close(ignored);
  out_.clear();
  for (auto& [tag, pending] : std::exchange(pending_, {})) {
    pending->result = Fail(Code::kUnavailable, "the spawner is gone: " + closed_);
    pending->wake.cancel();
  }
  for (auto& [machine, weak] : exits_) {
    auto state = weak.lock();
    if (!state) continue;
    state->lost = true;
    state->changed.Notify();
  }
}

}  // namespace sandbar::engine
