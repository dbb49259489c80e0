// The calls about files: transfers, trees, and calls on single files.
#include <algorithm>
#include <cerrno>

#include "engine/guest_link/core.h"

namespace sandbar::engine {
namespace {

constexpr int kTreePatience = 10;  // the removal of a tree may take so many times longer

int ErrnoOf(protocol::FileErrorKind kind) {
  using protocol::FileErrorKind;
  switch (kind) {
    case FileErrorKind::kNotFound:
      return ENOENT;
    case FileErrorKind::kDenied:
      return EACCES;
    case FileErrorKind::kExists:
      return EEXIST;
    case FileErrorKind::kNotDirectory:
      return ENOTDIR;
    case FileErrorKind::kIsDirectory:
      return EISDIR;
    case FileErrorKind::kNotRegular:
      return ENXIO;
    case FileErrorKind::kNoSpace:
      return ENOSPC;
    case FileErrorKind::kTooLarge:
      return EFBIG;
    case FileErrorKind::kBadArchive:
    case FileErrorKind::kInvalid:
      return EINVAL;
    case FileErrorKind::kTimeout:
      return ETIMEDOUT;
    case FileErrorKind::kNotEmpty:
      return ENOTEMPTY;
    case FileErrorKind::kOther:
      return EIO;
  }
  return EIO;
}

Error ToError(const protocol::FileError& e, bool missing_is_not_found) {
  using protocol::FileErrorKind;
  const bool missing = e.kind == FileErrorKind::kNotFound;
  return Error{missing && missing_is_not_found ? Code::kNotFound : Code::kFileError, e.message, ErrnoOf(e.kind)};
}

// A path through a file leads nowhere.
Error OpenError(const protocol::FileError& e) {
  Error error = ToError(e, true);
  if (error.sys_errno == ENOTDIR) error.code = Code::kNotFound;
  return error;
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
      co_return std::unexpected(OpenError(use_.stream->end->error()));
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

Task<> WaitEnd(LinkCore* core, LinkCore::Stream* s, std::chrono::milliseconds limit, bool missing_is_not_found) {
  auto deadline = LinkClock::now() + limit;
  while (!s->end) {
    if (core->closed()) co_return std::unexpected(core->Unavailable());
    SB_CO_TRYV(co_await s->waiter->Wait(deadline));
  }
  if (!*s->end) co_return std::unexpected(ToError(s->end->error(), missing_is_not_found));
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
Task<> Upload(std::shared_ptr<LinkCore> core, Request request, ByteSource* source, bool missing_is_not_found = false) {
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
  auto done = co_await WaitEnd(core.get(), stream.get(), core->limits().stall, missing_is_not_found);
  co_return done;
}

Result<> CheckPlace(const auto& request) {
  SB_TRYV(CheckPath(request.path, "path"));
  return CheckPath(request.cwd, "cwd");
}

// A request that is answered with its end.
template <class Request>
Task<> Ask(std::shared_ptr<LinkCore> core, Request request, std::chrono::milliseconds limit,
           bool missing_is_not_found) {
  if (auto good = CheckPlace(request); !good) co_return good;
  SB_CO_TRY(auto stream, co_await core->OpenStream(false));
  StreamUse use(core, stream);
  request.stream = stream->id;
  core->Send(request);
  auto done = co_await WaitEnd(core.get(), stream.get(), limit, missing_is_not_found);
  co_return done;
}

template <class Request>
Task<std::vector<protocol::FileEntry>> Entries(std::shared_ptr<LinkCore> core, Request request) {
  if (auto good = CheckPlace(request); !good) co_return std::unexpected(std::move(good).error());
  SB_CO_TRYV(core->Require(protocol::kFileCalls));
  auto opened = co_await OpenReader(std::move(core), std::move(request));
  // That the path is no directory is the answer here.
  if (!opened && opened.error().sys_errno == ENOTDIR) opened.error().code = Code::kFileError;
  SB_CO_TRY(auto reader, std::move(opened));
  std::string bytes;
  for (;;) {
    SB_CO_TRY(std::string chunk, co_await reader->Next());
    if (chunk.empty()) co_return protocol::DecodeEntries(bytes);
    bytes += chunk;
    if (bytes.size() > protocol::kMaxListing) co_return Fail(Code::kProtocol, "the agent's list of files is too long");
  }
}

}  // namespace

Task<std::unique_ptr<FileStream>> CallReadFile(std::shared_ptr<LinkCore> core, protocol::ReadFile request) {
  if (auto good = CheckPath(request.cwd, "cwd"); !good) co_return std::unexpected(std::move(good).error());
  if (request.offset > 0 || request.length > 0) SB_CO_TRYV(core->Require(protocol::kFileCalls));
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
  const auto limit = core->limits().call;
  return Ask(std::move(core), std::move(request), limit, false);
}

Task<std::vector<protocol::FileEntry>> CallListDir(std::shared_ptr<LinkCore> core, protocol::ListDir request) {
  return Entries(std::move(core), std::move(request));
}

Task<protocol::FileEntry> CallStatFile(std::shared_ptr<LinkCore> core, protocol::StatFile request) {
  SB_CO_TRY(auto entries, co_await Entries(std::move(core), std::move(request)));
  if (entries.size() != 1) co_return Fail(Code::kProtocol, "the agent answered a stat with a list");
  co_return std::move(entries.front());
}

Task<> CallWriteFile(std::shared_ptr<LinkCore> core, protocol::WriteFile request, ByteSource* source) {
  if (auto good = CheckPlace(request); !good) co_return good;
  SB_CO_TRYV(core->Require(protocol::kFileCalls));
  co_return co_await Upload(std::move(core), std::move(request), source, true);
}

Task<> CallEditFile(std::shared_ptr<LinkCore> core, FileEdit change) {
  SB_CO_TRYV(core->Require(protocol::kFileCalls));
  if (auto* rename = std::get_if<protocol::RenameFile>(&change)) SB_CO_TRYV(CheckPath(rename->to, "to"));
  if (auto* link = std::get_if<protocol::MakeLink>(&change)) SB_CO_TRYV(CheckPath(link->target, "target"));
  const auto* remove = std::get_if<protocol::RemoveFile>(&change);
  const bool tree = remove != nullptr && remove->what == protocol::RemoveFile::What::kTree;
  const auto limit = core->limits().stall * (tree ? kTreePatience : 1);
  auto ask = [&core, limit](auto& request) { return Ask(core, std::move(request), limit, true); };
  Task<> asked = std::visit(ask, change);
  co_return co_await std::move(asked);
}

}  // namespace sandbar::engine
