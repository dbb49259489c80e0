#include <algorithm>

#include "engine/guest_link/core.h"

namespace sandbar::engine {
namespace {

constexpr std::chrono::milliseconds kBeforeProbe{200};  // most machines are quiet by then

bool HasNul(const std::vector<std::string>& strings) {
  return std::any_of(strings.begin(), strings.end(), [](const auto& s) { return s.find('\0') != std::string::npos; });
}

Result<> CheckPath(const std::string& path, std::string_view what) {
  if (path.size() > protocol::kMaxPath) return Fail(Code::kBadRequest, std::string(what) + " is too long");
  if (path.find('\0') != std::string::npos) return Fail(Code::kBadRequest, std::string(what) + " contains NUL");
  return {};
}

Result<> CheckSize(protocol::TerminalSize size) {
  if (size.cols <= protocol::kMaxTerminalSide && size.rows <= protocol::kMaxTerminalSide) return {};
  return Fail(Code::kBadRequest,
              "a terminal has at most " + std::to_string(protocol::kMaxTerminalSide) + " columns and rows");
}

Result<> Check(const protocol::Exec& request) {
  if (request.id.empty() || request.id.size() > protocol::kMaxCommandId)
    return Fail(Code::kBadRequest, "bad command id");
  if (request.argv.empty()) return Fail(Code::kBadRequest, "empty command");
  if (HasNul(request.argv) || HasNul(request.env)) return Fail(Code::kBadRequest, "an argument contains NUL");
  if (request.user.size() > protocol::kMaxUserName) return Fail(Code::kBadRequest, "user name is too long");
  SB_TRYV(CheckPath(request.cwd, "cwd"));
  if (request.terminal) SB_TRYV(CheckSize(*request.terminal));
  if (protocol::Encode(request).size() > protocol::kMaxFrame)
    return Fail(Code::kTooLarge, "command and environment too large");
  return {};
}

Error ToError(const protocol::FileError& e, bool missing_is_not_found) {
  using protocol::FileErrorKind;
  bool missing = e.kind == FileErrorKind::kNotFound || e.kind == FileErrorKind::kNotDirectory;
  if (missing && missing_is_not_found) return Error{Code::kNotFound, e.message};
  return Error{Code::kFileError, e.message};
}

// Gives the stream up when its user goes away before it has ended.
struct StreamUse {
  std::shared_ptr<LinkCore> core;
  std::shared_ptr<LinkCore::Stream> stream;
  StreamUse(std::shared_ptr<LinkCore> c, std::shared_ptr<LinkCore::Stream> s)
      : core(std::move(c)), stream(std::move(s)) {}
  StreamUse(const StreamUse&) = delete;
  StreamUse& operator=(const StreamUse&) = delete;
  ~StreamUse() { core->Abort(stream); }
};

class ReadStream : public FileStream {
 public:
  ReadStream(std::shared_ptr<LinkCore> core, std::shared_ptr<LinkCore::Stream> stream)
      : use_(std::move(core), std::move(stream)) {}

  // Until there is a chunk or the end.
  Task<> Wait(std::chrono::milliseconds limit) {
    auto deadline = LinkClock::now() + limit;
    while (use_.stream->chunks.empty() && !use_.stream->end) {
      if (use_.core->closed()) co_return std::unexpected(use_.core->Unavailable());
      SB_CO_TRYV(co_await use_.stream->waiter->Wait(deadline));
    }
    if (use_.stream->chunks.empty() && !*use_.stream->end)
      co_return std::unexpected(ToError(use_.stream->end->error(), true));
    co_return Result<>{};
  }

  Task<std::string> Next() override {
    SB_CO_TRYV(co_await Wait(use_.core->limits().stall));
    auto& s = *use_.stream;
    if (s.chunks.empty()) co_return std::string();
    std::string chunk = std::move(s.chunks.front());
    s.chunks.pop_front();
    s.consumed += chunk.size();
    if (s.consumed >= protocol::kStreamWindow / 4 && !s.end) {
      use_.core->Send(protocol::Credit{s.id, static_cast<uint32_t>(s.consumed)});
      s.window += std::exchange(s.consumed, 0);
    }
    co_return chunk;
  }

 private:
  StreamUse use_;
};

// Waits until `bytes` may be sent; false when the agent ended the stream first.
Task<bool> WaitCredit(LinkCore* core, LinkCore::Stream* s, size_t bytes) {
  auto deadline = LinkClock::now() + core->limits().stall;
  while (!core->closed() && !s->end && s->credit < bytes) {
    auto woken = co_await s->waiter->Wait(deadline);
    if (!woken) co_return std::unexpected(std::move(woken).error());
  }
  auto room = co_await core->WaitRoom(deadline);
  if (!room) co_return std::unexpected(std::move(room).error());
  co_return !s->end.has_value();
}

Task<> WaitEnd(LinkCore* core, LinkCore::Stream* s, std::chrono::milliseconds limit) {
  auto deadline = LinkClock::now() + limit;
  while (!s->end) {
    if (core->closed()) co_return std::unexpected(core->Unavailable());
    SB_CO_TRYV(co_await s->waiter->Wait(deadline));
  }
  if (!*s->end) co_return std::unexpected(ToError(s->end->error(), false));
  co_return Result<>{};
}

// False when the agent ended the stream first.
Task<bool> SendChunk(LinkCore* core, LinkCore::Stream* s, std::string chunk) {
  for (size_t at = 0; at < chunk.size();) {
    size_t n = std::min(chunk.size() - at, protocol::kMaxData / 2);
    auto may = co_await WaitCredit(core, s, n);
    if (!may || !*may) co_return may;
    s->credit -= n;
    core->Send(protocol::Data{s->id, chunk.substr(at, n)});
    at += n;
  }
  co_return true;
}

}  // namespace

Task<> CallExec(std::shared_ptr<LinkCore> core, protocol::Exec request) {
  if (auto good = Check(request); !good) co_return good;
  if (core->closed()) co_return std::unexpected(core->Unavailable());
  if (request.standard_input) SB_CO_TRYV(core->Require(protocol::kStandardInput));
  if (request.terminal) SB_CO_TRYV(core->Require(protocol::kTerminals));
  if (core->commands.size() >= protocol::kMaxCommands) co_return Fail(Code::kTooMany, "too many commands at once");
  auto deadline = LinkClock::now() + core->limits().call;
  SB_CO_TRYV(co_await core->WaitRoom(deadline));
  LinkCore::ExecCall call{Waiter(core->executor()), std::nullopt};
  auto [it, fresh] = core->commands.try_emplace(request.id);
  if (!fresh) co_return Fail(Code::kConflict, "command id is in use");
  it->second.starting = &call;
  if (request.TakesInput()) it->second.input.emplace();
  // However this coroutine ends, the core must not keep a pointer into it.
  struct Detach {
    LinkCore& core;
    const std::string& id;
    LinkCore::ExecCall* call;
    ~Detach() {
      auto at = core.commands.find(id);
      if (call->result || at == core.commands.end() || at->second.starting != call) return;
      at->second.starting = nullptr;
      at->second.abandoned = true;
      core.Kill(id, 9);
    }
  } detach{*core, request.id, &call};
  core->Send(request);
  SB_CO_TRYV(co_await call.waiter.Wait(deadline));
  co_return *call.result;
}

Task<> CallResize(std::shared_ptr<LinkCore> core, std::string command, protocol::TerminalSize size) {
  if (auto good = CheckSize(size); !good) co_return good;
  SB_CO_TRYV(core->Require(protocol::kTerminals));
  SB_CO_TRYV(co_await core->WaitRoom(LinkClock::now() + core->limits().call));
  if (!core->commands.contains(command)) co_return Fail(Code::kNotFound, "no such command");
  core->Send(protocol::Resize{std::move(command), size});
  co_return Result<>{};
}

Task<protocol::Quiesced> CallQuiesce(std::shared_ptr<LinkCore> core, QuiesceRequest request) {
  if (core->closed()) co_return std::unexpected(core->Unavailable());
  if (core->quiesce != nullptr) co_return Fail(Code::kConflict, "the machine is being quiesced already");
  LinkCore::QuiesceCall call{Waiter(core->executor()), std::nullopt};
  struct Detach {
    LinkCore& core;
    ~Detach() { core.quiesce = nullptr; }
  } detach{*core};
  core->quiesce = &call;
  core->Send(protocol::Quiesce{static_cast<uint64_t>(std::max<int64_t>(request.grace.count(), 0)), request.go_on});
  const auto silence = request.silence.count() > 0 ? request.silence : core->limits().silence;
  const auto deadline = LinkClock::now() + request.grace + core->limits().call;
  // Writing files out may take long, and the agent reports only its end. Probes tell a busy agent from a silent one.
  auto pause = std::min(kBeforeProbe, silence);
  std::shared_ptr<LinkCore::Stream> probe;
  LinkClock::time_point asked;
  for (;;) {
    auto woken = co_await call.waiter.Wait(std::min(deadline, LinkClock::now() + pause));
    if (call.result) co_return *call.result;
    if (core->closed()) co_return std::unexpected(core->Unavailable());
    const bool late = !woken && woken.error().code == Code::kTimeout && LinkClock::now() < deadline;
    if (!late) co_return std::unexpected(woken ? core->Unavailable() : std::move(woken).error());
    if (probe && !probe->end && !core->HeardSince(asked))
      co_return Fail(Code::kTimeout, "the machine's agent gives no sign of life");
    asked = LinkClock::now();
    if (!probe || probe->end) probe = core->Probe();
    pause = silence;
  }
}

Task<> CallRekey(std::shared_ptr<LinkCore> core, protocol::Rekey request) {
  if (core->closed()) co_return std::unexpected(core->Unavailable());
  Waiter answered(core->executor());
  struct Detach {
    LinkCore& core;
    ~Detach() { core.rekeying = nullptr; }
  } detach{*core};
  core->rekeying = &answered;
  core->Send(request);
  SB_CO_TRYV(co_await answered.Wait(LinkClock::now() + core->limits().call));
  if (core->closed()) co_return std::unexpected(core->Unavailable());
  co_return Result<>{};
}

namespace {

template <class Request>
Task<std::unique_ptr<FileStream>> OpenReader(std::shared_ptr<LinkCore> core, Request request) {
  if (auto good = CheckPath(request.path, "path"); !good) co_return std::unexpected(std::move(good).error());
  SB_CO_TRY(auto stream, co_await core->OpenStream(false));
  auto reader = std::make_unique<ReadStream>(core, stream);
  request.stream = stream->id;
  core->Send(request);
  // The first chunk or the end says that the file is open.
  SB_CO_TRYV(co_await reader->Wait(core->limits().call));
  co_return std::unique_ptr<FileStream>(std::move(reader));
}

template <class Request>
Task<> Upload(std::shared_ptr<LinkCore> core, Request request, ByteSource* source) {
  SB_CO_TRY(auto stream, co_await core->OpenStream(true));
  StreamUse use(core, stream);
  request.stream = stream->id;
  core->Send(request);
  for (;;) {
    SB_CO_TRY(std::string chunk, co_await source->Next());
    if (chunk.empty()) break;
    SB_CO_TRY(bool more, co_await SendChunk(core.get(), stream.get(), std::move(chunk)));
    if (!more) break;
  }
  if (!stream->end) {
    stream->input_ended = true;
    core->Send(protocol::End{stream->id});
  }
  auto done = co_await WaitEnd(core.get(), stream.get(), core->limits().stall);
  co_return done;
}

}  // namespace

Task<std::unique_ptr<FileStream>> CallReadFile(std::shared_ptr<LinkCore> core, protocol::ReadFile request) {
  if (auto good = CheckPath(request.cwd, "cwd"); !good) co_return std::unexpected(std::move(good).error());
  co_return co_await OpenReader(std::move(core), std::move(request));
}

Task<std::unique_ptr<FileStream>> CallPackTree(std::shared_ptr<LinkCore> core, protocol::PackTree request) {
  return OpenReader(std::move(core), std::move(request));
}

Task<> CallWriteTar(std::shared_ptr<LinkCore> core, protocol::WriteTar request, ByteSource* source) {
  if (auto good = CheckPath(request.cwd, "cwd"); !good) co_return good;
  co_return co_await Upload(std::move(core), std::move(request), source);
}

Task<> CallUnpackTree(std::shared_ptr<LinkCore> core, protocol::UnpackTree request, ByteSource* source) {
  return Upload(std::move(core), std::move(request), source);
}

Task<> CallMakeDir(std::shared_ptr<LinkCore> core, protocol::MakeDir request) {
  if (auto good = CheckPath(request.path, "path"); !good) co_return good;
  if (auto good = CheckPath(request.cwd, "cwd"); !good) co_return good;
  SB_CO_TRY(auto stream, co_await core->OpenStream(false));
  StreamUse use(core, stream);
  request.stream = stream->id;
  core->Send(request);
  auto done = co_await WaitEnd(core.get(), stream.get(), core->limits().call);
  co_return done;
}

}  // namespace sandbar::engine
