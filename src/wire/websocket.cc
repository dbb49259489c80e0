#include "wire/websocket.h"

#include <algorithm>
#include <cstring>

#include "wire/text.h"

namespace sandbar::wire {

namespace {

constexpr size_t kMaxControl = 125;
constexpr uint8_t kFin = 0x80, kReserved = 0x70, kOpcode = 0x0f;
constexpr uint8_t kMasked = 0x80, kLength = 0x7f;
constexpr uint8_t kTwoBytes = 126, kEightBytes = 127;

bool IsKnown(uint8_t opcode) {
  return opcode <= 2 || (opcode >= 8 && opcode <= 10);
}

// Codes that may stand in a close frame: those of RFC 6455 and its registry, and those of applications.
bool MayBeSent(uint16_t code) {
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}

// `at`: how many bytes of the payload came before.
void ApplyMask(char* data, size_t size, const uint8_t* mask, size_t at) {
  uint8_t turned[8];
  for (size_t i = 0; i < 8; ++i) turned[i] = mask[(at + i) % 4];
  uint64_t wide = 0;
  std::memcpy(&wide, turned, 8);
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + i, 8);
    word ^= wide;
    std::memcpy(data + i, &word, 8);
  }
  for (; i < size; ++i) data[i] = static_cast<char>(data[i] ^ turned[i % 8]);
}

}  // namespace

std::unexpected<Error> WebSocketDecoder::Bad(uint16_t code, std::string_view why) {
  close_code_ = code;
  return Fail(code == kCloseTooBig ? Code::kTooLarge : Code::kProtocol, "WebSocket: " + std::string(why));
}

Result<size_t> WebSocketDecoder::Feed(std::string_view in, std::optional<WebSocketMessage>* message) {
  message->reset();
  if (close_code_ != 0) return Bad(close_code_, "the connection has failed");
  if (closed_) return in.size();
  size_t used = 0;
  while (used < in.size() && !*message) {
    if (!in_payload_) {
      used += TakeHead(in.substr(used));
      if (head_size_ < head_needed_) break;
      if (head_size_ == 2) {
        SB_TRYV(CheckStart());
        if (head_needed_ > 2) continue;
      }
      SB_TRYV(ReadLength());
    } else {
      const std::string_view piece = in.substr(used, std::min<uint64_t>(left_, in.size() - used));
      used += piece.size();
      SB_TRYV(TakePayload(piece));
    }
    if (left_ != 0) continue;
    SB_TRY(*message, EndFrame());
  }
  return used;
}

size_t WebSocketDecoder::TakeHead(std::string_view in) {
  const size_t n = std::min(in.size(), head_needed_ - head_size_);
  std::memcpy(head_.data() + head_size_, in.data(), n);
  head_size_ += n;
  return n;
}

// Looks at the first two bytes, before anything is stored for the frame.
Result<> WebSocketDecoder::CheckStart() {
  last_ = (head_[0] & kFin) != 0;
  opcode_ = head_[0] & kOpcode;
  const uint8_t length = head_[1] & kLength;
  const bool masked = (head_[1] & kMasked) != 0;
  if ((head_[0] & kReserved) != 0) return Bad(kCloseProtocol, "a reserved bit is set");
  if (!IsKnown(opcode_)) return Bad(kCloseProtocol, "a frame of an unknown kind");
  if (masked != (role_ == WebSocketRole::kServer))
    return Bad(kCloseProtocol, masked ? "a server's frame is masked" : "a client's frame is not masked");
  if (control() && !last_) return Bad(kCloseProtocol, "a control frame is fragmented");
  if (control() && length > kMaxControl) return Bad(kCloseProtocol, "a control frame is longer than 125 bytes");
  if (opcode_ == 0 && !kind_) return Bad(kCloseProtocol, "a fragment without a beginning");
  if (opcode_ != 0 && !control() && kind_) return Bad(kCloseProtocol, "a message begins inside another");
  if (length == kTwoBytes) head_needed_ += 2;
  if (length == kEightBytes) head_needed_ += 8;
  if (masked) head_needed_ += 4;
  return {};
}

Result<> WebSocketDecoder::ReadLength() {
  const uint8_t length = head_[1] & kLength;
  const size_t extra = length == kTwoBytes ? 2 : length == kEightBytes ? 8 : 0;
  left_ = extra == 0 ? length : 0;
  for (size_t i = 0; i < extra; ++i) left_ = left_ << 8 | head_[2 + i];
  if ((extra == 2 && left_ < kTwoBytes) || (extra == 8 && (left_ <= 0xffff || left_ >> 63 != 0)))
    return Bad(kCloseProtocol, "a length is not written in its shortest form");
  if (!control() && left_ > max_message_ - data_.size())
    return Bad(kCloseTooBig, "a message is larger than " + std::to_string(max_message_) + " bytes");
  if (left_ == 0 || opcode_ > 8) ++idle_frames_;
  if (opcode_ != 0 && !control()) kind_ = static_cast<WebSocketKind>(opcode_);
  mask_at_ = 0;
  in_payload_ = true;
  return {};
}

Result<> WebSocketDecoder::TakePayload(std::string_view piece) {
  std::string& target = control() ? control_data_ : data_;
  const size_t before = target.size();
  target.append(piece);
  if (role_ == WebSocketRole::kServer)
    ApplyMask(target.data() + before, piece.size(), head_.data() + head_needed_ - 4, mask_at_);
  mask_at_ = (mask_at_ + piece.size()) % 4;
  left_ -= piece.size();
  const bool text = !control() && kind_ == WebSocketKind::kText;
  if (text && !text_.Feed(std::string_view(target).substr(before)))
    return Bad(kCloseBadText, "a text message is not UTF-8");
  return {};
}

Result<std::optional<WebSocketMessage>> WebSocketDecoder::EndFrame() {
  head_size_ = 0;
  head_needed_ = 2;
  in_payload_ = false;
  if (control()) {
    SB_TRY(WebSocketMessage message, EndControl());
    return message;
  }
  if (!last_) return std::nullopt;
  if (!text_.complete()) return Bad(kCloseBadText, "a text message ends inside a character");
  WebSocketMessage message{*kind_, std::move(data_), 0};
  data_ = {};
  kind_.reset();
  return message;
}

Result<WebSocketMessage> WebSocketDecoder::EndControl() {
  WebSocketMessage message{static_cast<WebSocketKind>(opcode_), std::move(control_data_), 0};
  control_data_ = {};
  if (message.kind != WebSocketKind::kClose) return message;
  closed_ = true;
  message.code = kCloseNoCode;
  if (message.data.empty()) return message;
  if (message.data.size() == 1) return Bad(kCloseProtocol, "a close frame has half a code");
  const auto high = static_cast<uint8_t>(message.data[0]);
  const auto low = static_cast<uint8_t>(message.data[1]);
  message.code = static_cast<uint16_t>(high << 8 | low);
  message.data.erase(0, 2);
  if (!MayBeSent(message.code)) return Bad(kCloseProtocol, "a close frame has a code that may not be sent");
  if (!IsUtf8(message.data)) return Bad(kCloseBadText, "the reason of a close frame is not UTF-8");
  return message;
}

void AppendFrame(std::string& out, WebSocketKind kind, std::string_view payload, std::optional<WebSocketMask> mask) {
  out.push_back(static_cast<char>(kFin | static_cast<uint8_t>(kind)));
  const uint8_t masked = mask ? kMasked : 0;
  const uint64_t size = payload.size();
  size_t extra = 0;
  if (size < kTwoBytes) {
    out.push_back(static_cast<char>(masked | size));
  } else {
    extra = size <= 0xffff ? 2 : 8;
    out.push_back(static_cast<char>(masked | (extra == 2 ? kTwoBytes : kEightBytes)));
  }
  for (size_t i = extra; i-- > 0;) out.push_back(static_cast<char>(size >> (8 * i)));
  if (mask) out.append(reinterpret_cast<const char*>(mask->data()), mask->size());
  const size_t before = out.size();
  out.append(payload);
  if (mask) ApplyMask(out.data() + before, payload.size(), mask->data(), 0);
}

std::string ClosePayload(uint16_t code, std::string_view reason) {
  if (code == kCloseNoCode) return {};
  std::string out{static_cast<char>(code >> 8), static_cast<char>(code & 0xff)};
  while (!reason.empty()) {
    const Utf8Step step = DecodeUtf8(reason);
    if (!step.valid || out.size() + step.length > kMaxControl) break;
    out.append(reason.substr(0, step.length));
    reason.remove_prefix(step.length);
  }
  return out;
}

}  // namespace sandbar::wire
