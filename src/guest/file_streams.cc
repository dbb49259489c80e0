#include "guest/file_streams.h"

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace sandbar::guest {
namespace {

constexpr uint64_t kGrantStep = 128 << 10;
constexpr const char* kStopping = "the machine is stopping";

}  // namespace

bool FileStreams::TakeId(uint32_t id) {
  if (id <= last_id_) return outlet_->Violation("bad stream id"), false;
  last_id_ = id;
  return true;
}

void FileStreams::Open(FileRequest request) {
  uint32_t id = std::visit([](const auto& r) { return r.stream; }, request);
  if (!TakeId(id)) return;
  if (streams_.size() >= protocol::kMaxStreams) return outlet_->Violation("too many streams");
  if (refuse_new_) return outlet_->Send(protocol::FileError{id, protocol::FileErrorKind::kOther, kStopping});
  auto worker = StartWorker(*setup_, request);
  if (!worker) return outlet_->Send(ToFileError(id, worker.error()));
  auto& slot = streams_[id];
  slot = std::make_unique<Stream>();
  Stream& s = *slot;
  s.id = id;
  s.pid = worker->pid;
  workers_[s.pid] = id;
  s.up = std::move(worker->up);
  s.upload = IsUpload(request);
  const auto* remove = std::get_if<protocol::RemoveFile>(&request);
  s.patient = remove != nullptr && remove->what == protocol::RemoveFile::What::kTree;
  s.up_watch = loop_->Add(s.up.get(), EPOLLIN, [this, &s](uint32_t) { OnUp(s); });
  if (s.upload) {
    s.down = std::move(worker->down);
    s.down_watch = loop_->Add(s.down.get(), 0, [this, &s](uint32_t) { FlushDown(s); });
  }
  Watchdog(s);
}

FileStreams::Stream* FileStreams::Find(uint32_t id) {
  auto it = streams_.find(id);
  if (it != streams_.end()) return it->second.get();
  if (id > last_id_) outlet_->Violation("unknown stream");
  return nullptr;
}

void FileStreams::OnData(protocol::Data& data) {
  Stream* s = Find(data.stream);
  if (s == nullptr) return;
  if (!s->upload || s->down_ended) return outlet_->Violation("data on a stream that takes none");
  if (data.bytes.size() > s->window) return outlet_->Violation("data beyond the credit");
  s->window -= data.bytes.size();
  s->down_buffer += data.bytes;
  FlushDown(*s);
}

void FileStreams::OnEnd(const protocol::End& end) {
  Stream* s = Find(end.stream);
  if (s == nullptr) return;
  if (!s->upload || s->down_ended) return outlet_->Violation("unexpected end of stream");
  s->down_ended = true;
  FlushDown(*s);
}

void FileStreams::OnCredit(const protocol::Credit& credit) {
  Stream* s = Find(credit.stream);
  if (s == nullptr) return;
  s->credit += credit.bytes;
  if (s->upload || s->credit > protocol::kStreamWindow) return outlet_->Violation("too much credit");
  Watchdog(*s);
  Relay(*s);
}

void FileStreams::OnAbort(const protocol::Abort& abort) {
  Stream* s = Find(abort.stream);
  if (s != nullptr) Fail(*s, protocol::FileErrorKind::kOther, "aborted");
}

void FileStreams::FlushDown(Stream& s) {
  size_t before = s.down_start;
  while (s.down && s.down_start < s.down_buffer.size()) {
    ssize_t n = ::write(s.down.get(), s.down_buffer.data() + s.down_start, s.down_buffer.size() - s.down_start);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      // The worker reads no more: it has failed and says so on the other pipe.
      s.down_watch.Reset();
      s.down.Reset();
      break;
    }
    s.down_start += static_cast<size_t>(n);
  }
  if (!s.down) s.down_start = s.down_buffer.size();
  uint64_t done = s.down_start - before;
  if (done > 0) Watchdog(s);
  s.granted_later += done;
  if (s.down_start >= s.down_buffer.size() / 2) {
    s.down_buffer.erase(0, s.down_start);
    s.down_start = 0;
  }
  if (s.granted_later >= kGrantStep && !s.down_ended) {
    s.window += s.granted_later;
    outlet_->Send(protocol::Credit{s.id, static_cast<uint32_t>(s.granted_later)});
    s.granted_later = 0;
  }
  if (!s.down) return;
  if (s.down_buffer.empty() && s.down_ended) {
    s.down_watch.Reset();
    s.down.Reset();
    return;
  }
  s.down_watch.Set(s.down_buffer.empty() ? 0 : static_cast<uint32_t>(EPOLLOUT));
}

void FileStreams::OnUp(Stream& s) {
  std::array<char, kWorkerChunk> buffer;
  ssize_t n = ::read(s.up.get(), buffer.data(), buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) {
    Watchdog(s);
    s.decoder.Feed(std::string_view(buffer.data(), static_cast<size_t>(n)));
    Relay(s);
    return;
  }
  Fail(s, protocol::FileErrorKind::kOther, "the file worker was killed");
}

bool FileStreams::Relay(Stream& s) {
  for (;;) {
    if (outlet_->full()) {
      s.up_watch.Set(0);
      return true;
    }
    if (!s.held) {
      protocol::GuestFrame frame;
      auto got = s.decoder.Next(frame);
      if (!got) return Fail(s, protocol::FileErrorKind::kOther, "the file worker is confused"), false;
      if (!*got) {
        s.up_watch.Set(EPOLLIN);
        return true;
      }
      s.held = std::move(frame);
    }
    auto* data = std::get_if<protocol::Data>(&*s.held);
    if (data != nullptr && data->bytes.size() > s.credit) {
      s.up_watch.Set(0);
      s.stall.Reset();  // now the daemon is the one to wait for
      return true;
    }
    protocol::GuestFrame frame = *std::exchange(s.held, std::nullopt);
    if (!Forward(s, frame)) return false;
  }
}

// The worker runs as the guest's user: what it says is checked like anything from there.
bool FileStreams::Forward(Stream& s, protocol::GuestFrame& frame) {
  uint32_t id = s.id;
  if (auto* data = std::get_if<protocol::Data>(&frame); data != nullptr && !s.upload) {
    s.credit -= data->bytes.size();
    data->stream = id;
    outlet_->Send(frame);
    return true;
  }
  if (std::holds_alternative<protocol::End>(frame)) {
    outlet_->Send(protocol::End{id});
  } else if (auto* error = std::get_if<protocol::FileError>(&frame)) {
    outlet_->Send(protocol::FileError{id, error->kind, std::move(error->message)});
  } else {
    outlet_->Send(protocol::FileError{id, protocol::FileErrorKind::kOther, "the file worker is confused"});
  }
  Close(id);
  return false;
}

void FileStreams::Watchdog(Stream& s) {
  if (s.patient) return;
  s.stall = loop_->After(stall_, [this, &s] {
    // An upload that waits for the daemon's next bytes is not the worker's fault.
    if (s.upload && s.down_buffer.empty() && !s.down_ended) return Watchdog(s);
    Fail(s, protocol::FileErrorKind::kTimeout, "the file system does not answer");
  });
}

void FileStreams::Fail(Stream& s, protocol::FileErrorKind kind, std::string message) {
  outlet_->Send(protocol::FileError{s.id, kind, std::move(message)});
  Close(s.id);
}

void FileStreams::Close(uint32_t id) {
  auto it = streams_.find(id);
  // Before its pipe is closed: the worker would take that for the end of the bytes, and keep a part as the whole.
  if (workers_.contains(it->second->pid)) ::kill(it->second->pid, SIGKILL);
  streams_.erase(it);
}

void FileStreams::AbortAll() {
  while (!streams_.empty()) Close(streams_.begin()->first);
}

void FileStreams::RefuseNew() {
  refuse_new_ = true;
  while (!streams_.empty()) Fail(*streams_.begin()->second, protocol::FileErrorKind::kOther, kStopping);
}

bool FileStreams::OnReaped(pid_t pid) {
  return workers_.erase(pid) > 0;
}

void FileStreams::Pump() {
  for (auto it = streams_.begin(); it != streams_.end() && !outlet_->full();) {
    Stream& s = *(it++)->second;
    Relay(s);
  }
}

}  // namespace sandbar::guest
