#include "protocol/guest_frames.h"

#include <optional>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "protocol/codec.h"

namespace sandbar::protocol {
namespace {

constexpr uint32_t kNewestGuestVersion = 4 + kAhead;
constexpr uint8_t kHostBase = 1;
constexpr uint8_t kGuestBase = 65;
constexpr size_t kMaxItems = 65536, kMaxItem = 1 << 20;  // of argv and env; a frame is shorter
constexpr char kEscape = kGuestMagic[0];                 // does not come again in a magic

template <class A>
void Id(A& a, Is<std::string> auto& id) {
  a.Text(id, kMaxCommandId);
  a.Require(!id.empty());
}
template <class A>
void Offset(A& a, Is<uint64_t> auto& offset) {
  a(offset);
  a.Require(offset <= kMaxOffset);
}
// Of a message about a path.
template <class A>
void Place(A& a, auto& m) {
  a(m.stream);
  a.Text(m.path, kMaxPath);
  a.Text(m.cwd, kMaxPath);
  a(m.uid);
  a(m.gid);
  a.Text(m.user, kMaxUserName);
}
template <class A>
void Mode(A& a, Is<uint32_t> auto& mode) {
  a(mode);
  a.Require(mode <= kMaxMode);
}
template <class A, class T>
void Maybe(A& a, T& v) {
  bool has = v.has_value();
  auto value = v.value_or(typename T::value_type());
  a(has);
  a(value);
  if constexpr (A::kReads) v = has ? T(value) : std::nullopt;
}
template <class A>
void Size(A& a, Is<TerminalSize> auto& size) {
  a(size.cols);
  a(size.rows);
  a.Require(size.cols <= kMaxTerminalSide && size.rows <= kMaxTerminalSide);
}

}  // namespace

template <class A>
void Fields(A& a, Is<Hello> auto& m) {
  a(m.oldest);
  a(m.nonce);
}
template <class A>
void Fields(A& a, Is<Exec> auto& m) {
  Id(a, m.id);
  a.List(m.argv, kMaxItems, kMaxItem);
  a.Require(!m.argv.empty());
  a.List(m.env, kMaxItems, kMaxItem);
  a.Text(m.cwd, kMaxPath);
  a(m.uid);
  a(m.gid);
  a.Text(m.user, kMaxUserName);
  a(m.timeout_ms);
  a.Appended(m.channel, [&] { a.Enum(m.channel, Channel::kStandardInput); });
  a.Appended(m.standard_input, [&] { a(m.standard_input); });
  a.Appended(m.terminal, [&] {
    bool has = m.terminal.has_value();
    TerminalSize size = m.terminal.value_or(TerminalSize());
    a(has);
    Size(a, size);
    if constexpr (A::kReads) m.terminal = has ? std::optional(size) : std::nullopt;
  });
}
template <class A>
void Fields(A& a, Is<Ack> auto& m) {
  Id(a, m.id);
  Offset(a, m.offset);
}
template <class A>
void Fields(A& a, Is<ExitAck> auto& m) {
  Id(a, m.id);
}
template <class A>
void Fields(A& a, Is<Kill> auto& m) {
  Id(a, m.id);
  a(m.signal);
  a.Require(m.signal > 0 && m.signal <= 64);
}
template <class A>
void Fields(A& a, Is<Credit> auto& m) {
  a(m.stream);
  a(m.bytes);
  a.Require(m.bytes > 0);
}
template <class A>
void Fields(A& a, Is<ReadFile> auto& m) {
  Place(a, m);
  a.Appended(m.offset, [&] { Offset(a, m.offset); });
  a.Appended(m.length, [&] { Offset(a, m.length); });
}
template <class A>
void Fields(A& a, Is<WriteTar> auto& m) {
  a(m.stream);
  a.Text(m.cwd, kMaxPath);
  a(m.uid);
  a(m.gid);
  a.Text(m.user, kMaxUserName);
  a(m.gzip);
}
template <class A>
void Fields(A& a, Is<MakeDir> auto& m) {
  Place(a, m);
  a(m.recursive);
  a.Appended(m.mode, [&] { Maybe(a, m.mode); });
  a.Require(m.mode.value_or(0) <= kMaxMode);
}
template <class A>
void Fields(A& a, Is<ListDir> auto& m) {
  Place(a, m);
  a.Text(m.after, kMaxPath);
  a(m.limit);
  a.Require(m.limit > 0 && m.limit <= kMaxListed);
}
template <class A>
void Fields(A& a, Is<StatFile> auto& m) {
  Place(a, m);
  a(m.follow);
}
template <class A>
void Fields(A& a, Is<WriteFile> auto& m) {
  Place(a, m);
  Offset(a, m.offset);
  a(m.whole);
  a(m.create);
  a(m.exclusive);
  a(m.truncate);
  a(m.append);
  Mode(a, m.mode);
}
template <class A>
void Fields(A& a, Is<SetAttributes> auto& m) {
  Place(a, m);
  a(m.follow);
  Maybe(a, m.size);
  a.Require(m.size.value_or(0) <= kMaxOffset);
  Maybe(a, m.owner);
  Maybe(a, m.group);
  Maybe(a, m.mode);
  a.Require(m.mode.value_or(0) <= kMaxMode);
  Maybe(a, m.accessed_ns);
  Maybe(a, m.modified_ns);
}
template <class A>
void Fields(A& a, Is<RenameFile> auto& m) {
  Place(a, m);
  a.Text(m.to, kMaxPath);
  a(m.replace);
}
template <class A>
void Fields(A& a, Is<RemoveFile> auto& m) {
  Place(a, m);
  a.Enum(m.what, RemoveFile::What::kTree);
}
template <class A>
void Fields(A& a, Is<MakeLink> auto& m) {
  Place(a, m);
  a.Text(m.target, kMaxPath);
  a(m.symbolic);
}
template <class A>
void Fields(A& a, Is<PackTree> auto& m) {
  a(m.stream);
  a.Text(m.path, kMaxPath);
}
template <class A>
void Fields(A& a, Is<UnpackTree> auto& m) {
  a(m.stream);
  a.Text(m.path, kMaxPath);
}
template <class A>
void Fields(A& a, Is<Data> auto& m) {
  a(m.stream);
  a.Rest(m.bytes, kMaxData);
}
template <class A>
void Fields(A& a, Is<End> auto& m) {
  a(m.stream);
}
template <class A>
void Fields(A& a, Is<Abort> auto& m) {
  a(m.stream);
}
template <class A>
void Fields(A& a, Is<Quiesce> auto& m) {
  a(m.grace_ms);
  a(m.go_on);
}
template <class A>
void Fields(A& a, Is<Input> auto& m) {
  Id(a, m.id);
  a.Rest(m.bytes, kMaxData);
}
template <class A>
void Fields(A& a, Is<Stdin> auto& m) {
  Id(a, m.id);
  Offset(a, m.offset);
  a.Rest(m.bytes, kMaxData);
}
template <class A>
void Fields(A& a, Is<StdinEnd> auto& m) {
  Id(a, m.id);
  Offset(a, m.offset);
}
template <class A>
void Fields(A& a, Is<Resize> auto& m) {
  Id(a, m.id);
  Size(a, m.size);
}
template <class A>
void Fields(A&, Is<Gone> auto&) {}
template <class A>
void Fields(A& a, Is<Dial> auto& m) {
  a(m.stream);
  uint32_t port = m.port;
  a(port);
  a.Require(port > 0 && port <= 65535);
  if constexpr (A::kReads) m.port = static_cast<uint16_t>(port);
}
template <class A>
void Fields(A& a, Is<Rekey> auto& m) {
  a.Text(m.entropy, kMaxEntropy);
  a(m.clock_ns);
  a.Each(m.commands, kMaxCommands, [&](auto& c) { Id(a, c.from), Id(a, c.to); });
  a.Text(m.machine_key, kMaxMachineKey);
}
template <class A>
void Fields(A&, Is<Rekeyed> auto&) {}
template <class A>
void Fields(A& a, Is<HelloAck> auto& m) {
  a(m.oldest);
  a(m.nonce);
  a.Each(m.commands, kMaxCommands, [&](auto& c) { Id(a, c.id), Offset(a, c.produced), a(c.exited); });
  a.Appended(m.machine_key, [&] { a.Text(m.machine_key, kMaxMachineKey); });
  a.Appended(m.stdins, [&] {
    a.Each(m.stdins, kMaxCommands, [&](auto& i) {
      Id(a, i.id), Offset(a, i.accepted), Offset(a, i.taken), a(i.ended), a(i.closed);
      a.Require(i.taken <= i.accepted);
    });
  });
}
template <class A>
void Fields(A& a, Is<ExecStarted> auto& m) {
  Id(a, m.id);
  a(m.pid);
}
template <class A>
void Fields(A& a, Is<ExecFailed> auto& m) {
  Id(a, m.id);
  a.Enum(m.kind, ExecFailure::kOther);
  a.Text(m.message, kMaxErrorText);
}
template <class A>
void Fields(A& a, Is<Output> auto& m) {
  Id(a, m.id);
  Offset(a, m.offset);
  a(m.stream);
  a.Require(m.stream >= 1 && m.stream <= 3);
  a.Rest(m.bytes, kMaxData);
}
template <class A>
void Fields(A& a, Is<Gap> auto& m) {
  Id(a, m.id);
  Offset(a, m.offset);
  Offset(a, m.bytes);
  a.Require(m.bytes > 0);
}
template <class A>
void Fields(A& a, Is<Exit> auto& m) {
  Id(a, m.id);
  a(m.code);
  a.Require(m.code >= 0 && m.code <= 255);
  a(m.timed_out);
  a(m.duration_ms);
  Offset(a, m.final_offset);
  a(m.out_of_memory);
}
template <class A>
void Fields(A& a, Is<FileError> auto& m) {
  a(m.stream);
  a.Enum(m.kind, FileErrorKind::kInvalid);
  a.Text(m.message, kMaxErrorText);
}
template <class A>
void Fields(A& a, Is<Quiesced> auto& m) {
  a(m.clean);
  a(m.killed);
}
template <class A>
void Fields(A& a, Is<Dialed> auto& m) {
  a(m.stream);
}
template <class A>
void Fields(A& a, Is<StdinTaken> auto& m) {
  Id(a, m.id);
  Offset(a, m.offset);
}
template <class A>
void Fields(A& a, Is<StdinClosed> auto& m) {
  Id(a, m.id);
}

namespace {

template <class Frame>
constexpr uint8_t Base() {
  return std::is_same_v<Frame, HostFrame> ? kHostBase : kGuestBase;
}

// The fields of a hello, nothing for other frames.
template <class Frame>
auto* HelloOf(Frame& frame) {
  using Greeting = std::variant_alternative_t<0, std::remove_const_t<Frame>>;
  return std::get_if<Greeting>(&frame);
}

template <class Frame>
std::string EncodeFrame(const Frame& frame) {
  Put body;
  body(static_cast<uint8_t>(Base<Frame>() + frame.index()));
  std::visit([&](const auto& m) { Fields(body, m); }, frame);
  std::string payload = body.Take();
  ByteWriter out;
  out.U32(static_cast<uint32_t>(payload.size()));
  out.Raw(payload);
  return out.Take();
}

// What stands before a hello.
template <class Frame>
std::string Prefix(const Frame& frame, std::string_view magic) {
  const auto* hello = HelloOf(frame);
  if (hello == nullptr) return {};
  std::string out;
  if (hello->newest > hello->oldest) {
    SB_CHECK(hello->newest < static_cast<uint8_t>(kEscape));
    out += kVersionsMagic;
    out += static_cast<char>(hello->newest);
  }
  return out += magic;
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

}  // namespace

VersionRange GuestVersions() {
  return {kOldestGuestVersion, kNewestGuestVersion};
}

std::string Encode(const HostFrame& frame) {
  return Prefix(frame, kGuestMagic) + EncodeFrame(frame);
}

std::string Encode(const GuestFrame& frame) {
  return Prefix(frame, kGuestMagic) + EncodeFrame(frame);
}

std::string EncodeForStream(const GuestFrame& frame) {
  return Prefix(frame, kStreamMagic) + Escape(EncodeFrame(frame));
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
    if (!synced_ && n > 0) newest_ = 0;
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
  if (synced_) newest_ = 0;
  buffer_.clear();
  start_ = 0;
  const bool last = matched_ + 1 == kGuestMagic.size();
  synced_ = last && (c == kGuestMagic.back() || c == kStreamMagic.back());
  if (synced_) {
    stream_ = stream_ || c == kStreamMagic.back();
    matched_ = 0;
  } else if (matched_ == kVersionsMagic.size() && c != kEscape) {
    newest_ = c > 0 && c < kEscape ? static_cast<uint8_t>(c) : 0;
    matched_ = 0;
  } else if (matched_ < kGuestMagic.size() && (c == kGuestMagic[matched_] || (last && c == kVersionsMagic.back()))) {
    ++matched_;
  } else {
    matched_ = c == kEscape ? 1 : 0;
    newest_ = 0;
  }
}

template <class Frame>
void FrameDecoder<Frame>::Resync() {
  std::string rest = buffer_.substr(start_);
  buffer_.clear();
  start_ = 0;
  synced_ = false;
  newest_ = 0;
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
  if (!GetAlternative(index, payload, out)) return Fail(Code::kProtocol, "malformed frame");
  if (auto* hello = HelloOf(out)) hello->newest = newest_;
  newest_ = 0;
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
