// What the agent may say, and when. Anything else is kProtocol, which closes the link.
#include <algorithm>

#include "engine/guest_link/core.h"

namespace sandbar::engine {
namespace {

std::unexpected<Error> Broken(std::string_view what) {
  return Fail(Code::kProtocol, "the agent broke the protocol: " + std::string(what));
}

Error ToError(const protocol::ExecFailed& m) {
  using protocol::ExecFailure;
  switch (m.kind) {
    case ExecFailure::kNotFound:
    case ExecFailure::kNotExecutable:
      return Error{Code::kExecutableNotFound, m.message};
    case ExecFailure::kBadCwd:
      return Error{Code::kBadRequest, m.message};
    case ExecFailure::kDuplicate:
      return Error{Code::kConflict, m.message};
    case ExecFailure::kQuiescing:
      return Error{Code::kStopping, m.message};
    case ExecFailure::kNoResources:
      return Error{Code::kUnavailable, m.message};
    case ExecFailure::kOther:
      break;
  }
  return Error{Code::kBadRequest, m.message};
}

}  // namespace

Result<> LinkCore::Dispatch(protocol::GuestFrame& frame) {
  return std::visit([this](auto& m) { return On(m); }, frame);
}

Result<> LinkCore::On(protocol::HelloAck&) {
  return Broken("second hello");
}

Result<> LinkCore::On(protocol::ExecStarted& m) {
  auto it = commands.find(m.id);
  if (it == commands.end() || it->second.running) return Broken("unexpected start of a command");
  Command& c = it->second;
  c.running = true;
  c.seen = true;  // from here on everything is counted from zero
  if (c.starting != nullptr) {
    c.starting->result = Result<>{};
    std::exchange(c.starting, nullptr)->waiter.Notify();
  }
  return {};
}

Result<> LinkCore::On(protocol::ExecFailed& m) {
  auto it = commands.find(m.id);
  if (it == commands.end() || it->second.running) return Broken("unexpected failure of a command");
  if (ExecCall* call = it->second.starting) {
    call->result = std::unexpected(ToError(m));
    call->waiter.Notify();
  }
  commands.erase(it);
  return {};
}

Result<LinkCore::Command*> LinkCore::Live(const std::string& id) {
  auto it = commands.find(id);
  if (it == commands.end()) return Broken("unknown command");
  if (!it->second.running || it->second.exited) return Broken("output of a command that does not run");
  return &it->second;
}

Result<> LinkCore::CheckOffset(Command& c, uint64_t offset, uint64_t bytes, bool gap) {
  if (!c.seen) {
    // The replay begins at the last Ack that the agent got, from whoever gave it.
    if (offset > c.produced) return Broken("output from the future");
    c.seen = true;
    c.received = c.acked = offset;
  }
  if (offset != c.received) return Broken("output out of order");
  uint64_t limit = c.acked + protocol::kOutputWindow;
  if (offset >= limit || (!gap && bytes > limit - offset)) return Broken("output beyond the window");
  if (bytes > protocol::kMaxOffset - offset) return Broken("offset out of range");
  c.received = offset + bytes;
  return {};
}

Result<> LinkCore::On(protocol::Output& m) {
  SB_TRY(Command * c, Live(m.id));
  SB_TRYV(CheckOffset(*c, m.offset, m.bytes.size(), false));
  if (c->abandoned) return Ack(m.id, c->received), Result<>{};
  events_->OnOutput(m.id, m.offset, m.stream, m.bytes);
  return {};
}

Result<> LinkCore::On(protocol::Gap& m) {
  SB_TRY(Command * c, Live(m.id));
  SB_TRYV(CheckOffset(*c, m.offset, m.bytes, true));
  if (c->abandoned) return Ack(m.id, c->received), Result<>{};
  events_->OnGap(m.id, m.offset, m.bytes);
  return {};
}

Result<> LinkCore::On(protocol::Exit& m) {
  SB_TRY(Command * c, Live(m.id));
  if (c->seen && m.final_offset != c->received) return Broken("exit before the end of the output");
  if (!c->seen && m.final_offset < c->produced) return Broken("exit before the end of the output");
  c->exited = true;
  // Nobody reads its input any more: who waits for credit goes on and discards.
  if (c->input && !std::exchange(c->input->closed, true)) c->input->changed->NotifyAll();
  if (c->abandoned) return AckExit(m.id), Result<>{};
  events_->OnExit(m);
  return {};
}

Result<> LinkCore::On(protocol::Credit& m) {
  auto it = streams_.find(m.stream);
  if (it == streams_.end() || !(it->second->upload || it->second->connected)) return Broken("credit for no upload");
  Stream& s = *it->second;
  s.credit += m.bytes;
  if (s.credit > protocol::kStreamWindow) return Broken("too much credit");
  s.Notify();
  return {};
}

Result<> LinkCore::On(protocol::Data& m) {
  auto it = streams_.find(m.stream);
  if (it == streams_.end() || it->second->upload) return Broken("data on an unknown stream");
  Stream& s = *it->second;
  if (s.dial && (!s.connected || s.end)) return Broken("data outside of a connection");
  if (m.bytes.size() > s.window) return Broken("data beyond the credit");
  s.window -= m.bytes.size();
  if (s.aborted) return {};
  // Small ones together: the window counts bytes, and each chunk costs more than its own.
  if (!s.chunks.empty() && s.chunks.back().size() + m.bytes.size() <= protocol::kMaxData) {
    s.chunks.back() += m.bytes;
  } else {
    s.chunks.push_back(std::move(m.bytes));
  }
  s.waiter->Notify();
  return {};
}

Result<> LinkCore::On(protocol::End& m) {
  auto it = streams_.find(m.stream);
  if (it != streams_.end() && it->second->upload && !it->second->input_ended && !it->second->aborted)
    return Broken("an upload ended before its input");
  if (it != streams_.end() && it->second->dial) {
    Stream& s = *it->second;
    if (!s.connected || s.end) return Broken("an unexpected end of a connection");
    if (s.input_ended) return EndStream(m.stream, {});
    s.end.emplace();
    s.Notify();
    return {};
  }
  return EndStream(m.stream, {});
}

Result<> LinkCore::On(protocol::FileError& m) {
  uint32_t id = m.stream;
  return EndStream(id, std::unexpected(std::move(m)));
}

Result<> LinkCore::EndStream(uint32_t id, std::expected<void, protocol::FileError> how) {
  auto it = streams_.find(id);
  if (it == streams_.end()) return Broken("end of an unknown stream");
  it->second->end = std::move(how);
  it->second->Notify();
  streams_.erase(it);
  slots_.NotifyAll();
  return {};
}

Result<> LinkCore::On(protocol::Quiesced& m) {
  if (quiesce == nullptr || quiesce->result) return Broken("unexpected answer to quiesce");
  quiesce->result = m;
  quiesce->waiter.Notify();
  return {};
}

Result<> LinkCore::On(protocol::Dialed& m) {
  auto it = streams_.find(m.stream);
  if (it == streams_.end() || !it->second->dial || std::exchange(it->second->connected, true))
    return Broken("a connection that nobody asked for");
  it->second->Notify();
  return {};
}

Result<> LinkCore::On(protocol::Rekeyed&) {
  if (rekeying == nullptr) return Broken("unexpected answer to rekey");
  std::exchange(rekeying, nullptr)->Notify();
  return {};
}

Result<> LinkCore::On(protocol::StdinTaken& m) {
  SB_TRY(Command * c, Live(m.id));
  if (!c->input) return Broken("input of a command that takes none");
  if (m.offset <= c->input->taken || m.offset > c->input->sent) return Broken("it took input that it did not get");
  c->input->taken = m.offset;
  c->input->changed->NotifyAll();
  if (!c->abandoned) events_->OnStdinTaken(m.id, m.offset);
  return {};
}

Result<> LinkCore::On(protocol::StdinClosed& m) {
  SB_TRY(Command * c, Live(m.id));
  if (!c->input || std::exchange(c->input->closed, true)) return Broken("unexpected end of a command's input");
  c->input->changed->NotifyAll();
  if (!c->abandoned) events_->OnStdinClosed(m.id);
  return {};
}

Result<> LinkCore::TakeStdins(std::vector<protocol::StdinState> stdins) {
  for (const protocol::StdinState& s : stdins) {
    auto it = commands.find(s.id);
    if (it == commands.end() || it->second.input) return Broken("input of no command, or twice");
    if (s.accepted - s.taken > protocol::kStdinWindow) return Broken("it has input beyond the window");
    CommandStdin& input = it->second.input.emplace();
    input.sent = s.accepted;
    input.taken = s.taken;
    input.ended = s.ended;
    input.closed = s.closed;
  }
  known_stdins = std::move(stdins);
  return {};
}

CommandStdin* LinkCore::FindStdin(const std::string& id) {
  auto it = commands.find(id);
  return it == commands.end() || !it->second.input ? nullptr : &*it->second.input;
}

std::optional<protocol::StdinState> LinkCore::Stdin(const std::string& id) const {
  auto it = commands.find(id);
  if (it == commands.end() || !it->second.input) return std::nullopt;
  const CommandStdin& input = *it->second.input;
  return protocol::StdinState{id, input.sent, input.taken, input.ended, input.closed};
}

void LinkCore::Ack(const std::string& id, uint64_t offset) {
  auto it = commands.find(id);
  if (it == commands.end() || !it->second.seen) return;
  Command& c = it->second;
  // The receiver may have stored more, on an earlier connection, than was replayed so far.
  offset = std::min(offset, c.received);
  if (offset <= c.acked) return;
  c.acked = offset;
  Send(protocol::Ack{id, offset});
}

void LinkCore::AckExit(const std::string& id) {
  auto it = commands.find(id);
  if (it == commands.end() || !it->second.exited) return;
  Send(protocol::ExitAck{id});
  commands.erase(id);
}

void LinkCore::Kill(const std::string& id, int signal) {
  if (signal < 1 || signal > 64 || !commands.contains(id)) return;
  Send(protocol::Kill{id, signal});
}

Task<std::shared_ptr<LinkCore::Stream>> LinkCore::OpenStream(bool upload) {
  auto deadline = LinkClock::now() + limits_.stall;
  auto is_file = [](const auto& entry) { return !entry.second->dial; };
  while (!closed_ && std::ranges::count_if(streams_, is_file) >= kMaxOpenStreams) {
    auto turn = co_await slots_.Wait(deadline);
    if (!turn && turn.error().code == Code::kTimeout)
      co_return Fail(Code::kTooMany, "too many file operations at once");
    if (!turn) co_return std::unexpected(std::move(turn).error());
  }
  SB_CO_TRYV(co_await WaitRoom(deadline));
  auto s = std::make_shared<Stream>();
  s->id = next_stream_++;
  s->upload = upload;
  s->waiter = std::make_unique<Waiter>(executor_);
  streams_[s->id] = s;
  co_return s;
}

Result<std::shared_ptr<LinkCore::Stream>> LinkCore::OpenDial() {
  if (closed_) return std::unexpected(Unavailable());
  auto is_dial = [](const auto& entry) { return entry.second->dial; };
  if (std::ranges::count_if(streams_, is_dial) >= static_cast<ptrdiff_t>(protocol::kMaxDials))
    return Fail(Code::kTooMany, "too many connections into the machine");
  auto s = std::make_shared<Stream>();
  s->id = next_stream_++;
  s->dial = true;
  s->waiter = std::make_unique<Waiter>(executor_);
  s->credit_waiter = std::make_unique<Waiter>(executor_);
  streams_[s->id] = s;
  return s;
}

// Every version of the agent knows MakeDir. An agent that is ending its programs refuses it at once; otherwise it finds
// that "/" exists. The link opens fewer streams than the agent allows, so the agent has room for this one.
std::shared_ptr<LinkCore::Stream> LinkCore::Probe() {
  static_assert(kMaxOpenStreams < static_cast<ptrdiff_t>(protocol::kMaxStreams));
  auto s = std::make_shared<Stream>();
  s->id = next_stream_++;
  s->waiter = std::make_unique<Waiter>(executor_);
  streams_[s->id] = s;
  protocol::MakeDir root;
  root.stream = s->id;
  root.path = root.cwd = "/";
  root.recursive = true;
  Send(root);
  return s;
}

void LinkCore::EndInput(Stream& stream) {
  if (stream.aborted || std::exchange(stream.input_ended, true) || !streams_.contains(stream.id)) return;
  Send(protocol::End{stream.id});
  if (stream.end) streams_.erase(stream.id);
}

void LinkCore::Abort(const std::shared_ptr<Stream>& stream) {
  if (!streams_.contains(stream->id) || stream->aborted) return;
  stream->aborted = true;
  stream->chunks.clear();
  Send(protocol::Abort{stream->id});
}

}  // namespace sandbar::engine
