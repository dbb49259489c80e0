#include "protocol/guest_frames.h"

#include <type_traits>
#include <utility>

#include "base/bytes.h"

namespace sandbar::protocol {
namespace {

constexpr uint8_t kHostBase = 1;
constexpr uint8_t kGuestBase = 65;
constexpr char kEscape = kGuestMagic[0];  // does not come again in a magic

// Each message is described once (Visit below); Writer and Reader are the two directions.
class Writer {
 public:
  void U8(uint8_t v) { w_.U8(v); }
  void U32(uint32_t v) { w_.U32(v); }
  void U64(uint64_t v) { w_.U64(v); }
  void I32(int32_t v) { w_.I32(v); }
  void Bool(bool v) { w_.U8(v ? 1 : 0); }
  // The last field of a message, and absent when false: agents and daemons from before it understand the rest.
  void LastChannel(Channel v) {
    if (v != Channel::kNone) w_.U8(static_cast<uint8_t>(v));
  }
  void LastKey(const std::string& v) {
    if (!v.empty()) w_.Str(v);
  }
  void Positive(uint32_t v) { w_.U32(v); }
  void Port(uint16_t v) { w_.U32(v); }
  void Offset(uint64_t v) { w_.U64(v); }
  void Pipe(uint8_t v) { w_.U8(v); }
  void Id(const std::string& v) { w_.Str(v); }
  void Text(const std::string& v, size_t) { w_.Str(v); }
  void List(const std::vector<std::string>& v) { w_.StrList(v); }
  void Bytes(const std::string& v) { w_.Raw(v); }
  template <class E>
  void Enum(E v, E) {
    w_.U8(static_cast<uint8_t>(v));
  }
  void Require(bool) {}
  void Commands(const std::vector<CommandState>& v) {
    w_.U32(static_cast<uint32_t>(v.size()));
    for (const auto& c : v) {
      w_.Str(c.id);
      w_.U64(c.produced);
      w_.U8(c.exited ? 1 : 0);
    }
  }
  void Renames(const std::vector<Renamed>& v) {
    w_.U32(static_cast<uint32_t>(v.size()));
    for (const auto& c : v) {
      w_.Str(c.from);
      w_.Str(c.to);
    }
  }
  std::string Take() { return w_.Take(); }

 private:
  ByteWriter w_;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : r_(in) {}
  void U8(uint8_t& v) { v = r_.U8(); }
  void U32(uint32_t& v) { v = r_.U32(); }
  void U64(uint64_t& v) { v = r_.U64(); }
  void I32(int32_t& v) { v = r_.I32(); }
  void Bool(bool& v) {
    uint8_t b = r_.U8();
    Require(b <= 1);
    v = b == 1;
  }
  void LastChannel(Channel& v) {
    v = Channel::kNone;
    if (r_.remaining() == 0) return;
    Enum(v, Channel::kStandardInput);
    Require(v != Channel::kNone);
  }
  void LastKey(std::string& v) {
    v.clear();
    if (r_.remaining() == 0) return;
    v = r_.Str(kMaxMachineKey);
    Require(!v.empty());
  }
  void Positive(uint32_t& v) {
    v = r_.U32();
    Require(v > 0);
  }
  void Port(uint16_t& v) {
    uint32_t port = r_.U32();
    Require(port > 0 && port <= 65535);
    v = static_cast<uint16_t>(port);
  }
  void Offset(uint64_t& v) {
    v = r_.U64();
    Require(v <= kMaxOffset);
  }
  void Pipe(uint8_t& v) {
    v = r_.U8();
    Require(v >= 1 && v <= 3);
  }
  void Id(std::string& v) {
    v = r_.Str(kMaxCommandId);
    Require(!v.empty());
  }
  void Text(std::string& v, size_t max) { v = r_.Str(max); }
  void List(std::vector<std::string>& v) { v = r_.StrList(); }
  void Bytes(std::string& v) {
    Require(r_.remaining() > 0 && r_.remaining() <= kMaxData);
    if (ok_) v = r_.Rest();
  }
  template <class E>
  void Enum(E& v, E last) {
    uint8_t raw = r_.U8();
    Require(raw <= static_cast<uint8_t>(last));
    v = ok_ ? static_cast<E>(raw) : last;
  }
  void Require(bool holds) { ok_ = ok_ && holds; }
  void Commands(std::vector<CommandState>& v) {
    uint32_t n = r_.U32();
    Require(n <= kMaxCommands);
    for (uint32_t i = 0; i < n && ok_ && r_.ok(); ++i) {
      CommandState c;
      Id(c.id);
      Offset(c.produced);
      Bool(c.exited);
      v.push_back(std::move(c));
    }
  }
  void Renames(std::vector<Renamed>& v) {
    uint32_t n = r_.U32();
    Require(n <= kMaxCommands);
    for (uint32_t i = 0; i < n && ok_ && r_.ok(); ++i) {
      Renamed c;
      Id(c.from);
      Id(c.to);
      v.push_back(std::move(c));
    }
  }
  bool Done() const { return ok_ && r_.Done(); }

 private:
  ByteReader r_;
  bool ok_ = true;
};

template <class A>
void Visit(A& a, Hello& m) {
  a.U32(m.version);
  a.U64(m.nonce);
}
template <class A>
void Visit(A& a, Exec& m) {
  a.Id(m.id);
  a.List(m.argv);
  a.Require(!m.argv.empty());
  a.List(m.env);
  a.Text(m.cwd, kMaxPath);
  a.U32(m.uid);
  a.U32(m.gid);
  a.Text(m.user, kMaxUserName);
  a.U64(m.timeout_ms);
  a.LastChannel(m.channel);
}
template <class A>
void Visit(A& a, Ack& m) {
  a.Id(m.id);
  a.Offset(m.offset);
}
template <class A>
void Visit(A& a, ExitAck& m) {
  a.Id(m.id);
}
template <class A>
void Visit(A& a, Kill& m) {
  a.Id(m.id);
  a.I32(m.signal);
  a.Require(m.signal > 0 && m.signal <= 64);
}
template <class A>
void Visit(A& a, Credit& m) {
  a.U32(m.stream);
  a.Positive(m.bytes);
}
template <class A>
void Visit(A& a, ReadFile& m) {
  a.U32(m.stream);
  a.Text(m.path, kMaxPath);
  a.Text(m.cwd, kMaxPath);
  a.U32(m.uid);
  a.U32(m.gid);
  a.Text(m.user, kMaxUserName);
}
template <class A>
void Visit(A& a, WriteTar& m) {
  a.U32(m.stream);
  a.Text(m.cwd, kMaxPath);
  a.U32(m.uid);
  a.U32(m.gid);
  a.Text(m.user, kMaxUserName);
  a.Bool(m.gzip);
}
template <class A>
void Visit(A& a, MakeDir& m) {
  a.U32(m.stream);
  a.Text(m.path, kMaxPath);
  a.Text(m.cwd, kMaxPath);
  a.U32(m.uid);
  a.U32(m.gid);
  a.Text(m.user, kMaxUserName);
  a.Bool(m.recursive);
}
template <class A>
void Visit(A& a, PackTree& m) {
  a.U32(m.stream);
  a.Text(m.path, kMaxPath);
}
template <class A>
void Visit(A& a, UnpackTree& m) {
  a.U32(m.stream);
  a.Text(m.path, kMaxPath);
}
template <class A>
void Visit(A& a, Data& m) {
  a.U32(m.stream);
  a.Bytes(m.bytes);
}
template <class A>
void Visit(A& a, End& m) {
  a.U32(m.stream);
}
template <class A>
void Visit(A& a, Abort& m) {
  a.U32(m.stream);
}
template <class A>
void Visit(A& a, Quiesce& m) {
  a.U64(m.grace_ms);
  a.Bool(m.go_on);
}
template <class A>
void Visit(A& a, Input& m) {
  a.Id(m.id);
  a.Bytes(m.bytes);
}
template <class A>
void Visit(A&, Gone&) {}
template <class A>
void Visit(A& a, Dial& m) {
  a.U32(m.stream);
  a.Port(m.port);
}
template <class A>
void Visit(A& a, Renew& m) {
  a.Text(m.entropy, kMaxEntropy);
  a.U64(m.clock_ns);
  a.Renames(m.commands);
  a.Text(m.machine_key, kMaxMachineKey);
}
template <class A>
void Visit(A&, Renewed&) {}
template <class A>
void Visit(A& a, HelloAck& m) {
  a.U32(m.version);
  a.U64(m.nonce);
  a.Commands(m.commands);
  a.LastKey(m.machine_key);
}
template <class A>
void Visit(A& a, ExecStarted& m) {
  a.Id(m.id);
  a.I32(m.pid);
}
template <class A>
void Visit(A& a, ExecFailed& m) {
  a.Id(m.id);
  a.Enum(m.kind, ExecFailure::kOther);
  a.Text(m.message, kMaxErrorText);
}
template <class A>
void Visit(A& a, Output& m) {
  a.Id(m.id);
  a.Offset(m.offset);
  a.Pipe(m.stream);
  a.Bytes(m.bytes);
}
template <class A>
void Visit(A& a, Gap& m) {
  a.Id(m.id);
  a.Offset(m.offset);
  a.Offset(m.bytes);
  a.Require(m.bytes > 0);
}
template <class A>
void Visit(A& a, Exit& m) {
  a.Id(m.id);
  a.I32(m.code);
  a.Require(m.code >= 0 && m.code <= 255);
  a.Bool(m.timed_out);
  a.U64(m.duration_ms);
  a.Offset(m.final_offset);
  a.Bool(m.out_of_memory);
}
template <class A>
void Visit(A& a, FileError& m) {
  a.U32(m.stream);
  a.Enum(m.kind, FileErrorKind::kOther);
  a.Text(m.message, kMaxErrorText);
}
template <class A>
void Visit(A& a, Quiesced& m) {
  a.Bool(m.clean);
  a.U32(m.killed);
}

template <class A>
void Visit(A& a, Dialed& m) {
  a.U32(m.stream);
}

template <class Frame>
constexpr uint8_t Base() {
  return std::is_same_v<Frame, HostFrame> ? kHostBase : kGuestBase;
}

template <class Frame>
std::string EncodeFrame(const Frame& frame) {
  Writer body;
  body.U8(static_cast<uint8_t>(Base<Frame>() + frame.index()));
  bool hello = false;
  std::visit(
      [&](const auto& m) {
        using M = std::decay_t<decltype(m)>;
        hello = std::is_same_v<M, Hello> || std::is_same_v<M, HelloAck>;
        // A Writer only reads; Visit takes a mutable message because it also serves the Reader.
        Visit(body, const_cast<M&>(m));
      },
      frame);
  std::string payload = body.Take();
  ByteWriter out;
  if (hello) out.Raw(kGuestMagic);
  out.U32(static_cast<uint32_t>(payload.size()));
  out.Raw(payload);
  return out.Take();
}

std::string Escape(std::string frame) {
  size_t at = frame.find(kEscape);
  if (at == std::string::npos) return frame;
  std::string out;
  out.reserve(frame.size() + frame.size() / 64 + 16);
  for (size_t from = 0; from < frame.size(); at = frame.find(kEscape, from)) {
    size_t end = at == std::string::npos ? frame.size() : at + 1;
    out.append(frame, from, end - from);
    if (at != std::string::npos) out.push_back('\0');
    from = end;
  }
  return out;
}

template <class Frame, size_t I>
bool DecodeAs(std::string_view payload, Frame& out) {
  Reader r(payload);
  Visit(r, out.template emplace<I>());
  return r.Done();
}

template <class Frame, size_t... I>
bool DecodeIndex(size_t index, std::string_view payload, Frame& out, std::index_sequence<I...>) {
  bool ok = false;
  ((I == index && (ok = DecodeAs<Frame, I>(payload, out))) || ...);
  return ok;
}

}  // namespace

std::string Encode(const HostFrame& frame) {
  return EncodeFrame(frame);
}

std::string Encode(const GuestFrame& frame) {
  return EncodeFrame(frame);
}

std::string EncodeForStream(const GuestFrame& frame) {
  if (!std::holds_alternative<HelloAck>(frame)) return Escape(Encode(frame));
  return std::string(kStreamMagic) + Escape(Encode(frame).substr(kGuestMagic.size()));
}

std::string EncodeForStream(const HostFrame& frame) {
  return Escape(Encode(frame));
}

template <class Frame>
void FrameDecoder<Frame>::Feed(std::string_view bytes) {
  if (start_ > 0 && start_ >= buffer_.size() / 2) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  while (!bytes.empty()) {
    if (synced_ && !stream_) {
      buffer_.append(bytes);
      return;
    }
    if (matched_ > 0) {
      AfterEscape(bytes.front());
      bytes.remove_prefix(1);
      continue;
    }
    size_t n = std::min(bytes.find(kEscape), bytes.size());
    if (synced_) buffer_.append(bytes.substr(0, n));
    if (n < bytes.size()) ++n, matched_ = 1;
    bytes.remove_prefix(n);
  }
}

template <class Frame>
void FrameDecoder<Frame>::AfterEscape(char c) {
  if (matched_ == 1 && c == '\0') {
    if (synced_) buffer_.push_back(kEscape);
    matched_ = 0;
    return;
  }
  if (magic_forbidden_) {
    lost_ = true;
    return;
  }
  // The beginning of a magic, or rubbish: whatever was being received ends here.
  buffer_.clear();
  start_ = 0;
  synced_ = matched_ + 1 == kGuestMagic.size() && (c == kGuestMagic.back() || c == kStreamMagic.back());
  if (synced_) {
    stream_ = stream_ || c == kStreamMagic.back();
    matched_ = 0;
  } else if (c == kGuestMagic[matched_]) {
    ++matched_;
  } else {
    matched_ = c == kEscape ? 1 : 0;
  }
}

template <class Frame>
void FrameDecoder<Frame>::Resync() {
  std::string rest = buffer_.substr(start_);
  buffer_.clear();
  start_ = 0;
  synced_ = false;
  // Bytes of a stream are looked at when they are fed; there is no magic among those that are left.
  if (!stream_) Feed(rest);
}

template <class Frame>
Result<bool> FrameDecoder<Frame>::Next(Frame& out) {
  if (lost_) return Fail(Code::kProtocol, "bytes between frames that belong to none");
  if (!synced_) return false;
  auto rest = std::string_view(buffer_).substr(start_);
  if (rest.size() < 4) return false;
  uint32_t length = ByteReader(rest).U32();
  if (length == 0 || length > kMaxFrame) return Fail(Code::kProtocol, "frame length out of bounds");
  if (rest.size() - 4 < length) return false;
  auto type = static_cast<uint8_t>(rest[4]);
  auto payload = rest.substr(5, length - 1);
  start_ += 4 + length;
  size_t index = static_cast<size_t>(type) - Base<Frame>();
  if (type < Base<Frame>() || index >= std::variant_size_v<Frame>) return Fail(Code::kProtocol, "unknown frame type");
  if (!DecodeIndex(index, payload, out, std::make_index_sequence<std::variant_size_v<Frame>>()))
    return Fail(Code::kProtocol, "malformed frame");
  if (start_ == buffer_.size()) {
    // An idle connection should not keep the largest frame it ever saw.
    if (buffer_.capacity() > kMaxData) std::string().swap(buffer_);
    buffer_.clear();
    start_ = 0;
  }
  return true;
}

template class FrameDecoder<HostFrame>;
template class FrameDecoder<GuestFrame>;

}  // namespace sandbar::protocol
