#include "wire/websocket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sandbar::wire {
namespace {

using testing::HasSubstr;
using Kind = WebSocketKind;
using Role = WebSocketRole;

constexpr size_t kLimit = 1 << 20;
constexpr WebSocketMask kMask = {0x37, 0xfa, 0x21, 0x3d};  // of the RFC's example

struct Decoded {
  std::vector<WebSocketMessage> messages;
  uint16_t failed_with = 0;
  std::string error;
  uint64_t idle = 0;
};

Decoded Decode(std::string_view in, size_t step, Role role, size_t limit = kLimit) {
  Decoded out;
  WebSocketDecoder decoder(role, limit);
  while (!in.empty()) {
    std::string_view piece = in.substr(0, step);
    in.remove_prefix(piece.size());
    while (!piece.empty()) {
      std::optional<WebSocketMessage> message;
      auto used = decoder.Feed(piece, &message);
      if (!used) {
        out.failed_with = decoder.close_code();
        out.error = used.error().message;
        return out;
      }
      EXPECT_NE(*used, 0U);
      piece.remove_prefix(*used);
      if (message) out.messages.push_back(*std::move(message));
    }
  }
  out.idle = decoder.idle_frames();
  return out;
}

// Whole, byte by byte and in odd sizes.
std::vector<size_t> Steps(std::string_view in) {
  return {in.size(), 1, 2, 3, 7};
}

void ExpectMessage(const std::string& bytes, Role role, Kind kind, const std::string& data) {
  for (size_t step : Steps(bytes)) {
    const Decoded got = Decode(bytes, step, role);
    EXPECT_EQ(got.error, "");
    ASSERT_EQ(got.messages.size(), 1U) << "step " << step;
    EXPECT_EQ(got.messages[0].kind, kind);
    EXPECT_EQ(got.messages[0].data, data);
  }
}

void ExpectFailure(const std::string& bytes, Role role, uint16_t code, const std::string& why) {
  for (size_t step : Steps(bytes)) {
    const Decoded got = Decode(bytes, step, role);
    EXPECT_EQ(got.failed_with, code) << "step " << step;
    EXPECT_THAT(got.error, HasSubstr(why));
  }
}

std::string Bytes(std::initializer_list<int> bytes) {
  std::string out;
  for (int b : bytes) out.push_back(static_cast<char>(b));
  return out;
}

// A frame of a client with any first byte, masked with the RFC's key.
std::string Masked(int first, std::string_view payload) {
  std::string out;
  AppendFrame(out, Kind::kText, payload, kMask);
  out[0] = static_cast<char>(first);
  return out;
}

std::string Plain(int first, std::string_view payload) {
  std::string out;
  AppendFrame(out, Kind::kText, payload, std::nullopt);
  out[0] = static_cast<char>(first);
  return out;
}

// RFC 6455, section 5.7.
TEST(WebSocketDecoder, ReadsTheExamplesOfTheRfc) {
  ExpectMessage(Bytes({0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f}), Role::kClient, Kind::kText, "Hello");
  ExpectMessage(Bytes({0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58}), Role::kServer, Kind::kText,
                "Hello");
  ExpectMessage(Bytes({0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f}), Role::kClient, Kind::kText, "Hello");
  ExpectMessage(Bytes({0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f}), Role::kClient, Kind::kPing, "Hello");
  ExpectMessage(Bytes({0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58}), Role::kServer, Kind::kPong,
                "Hello");
  ExpectMessage(Bytes({0x82, 0x7e, 0x01, 0x00}) + std::string(256, 'x'), Role::kClient, Kind::kBinary,
                std::string(256, 'x'));
  ExpectMessage(Bytes({0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0}) + std::string(65536, 'x'), Role::kClient, Kind::kBinary,
                std::string(65536, 'x'));
}

TEST(WebSocketDecoder, ReadsWhatTheEncoderWrites) {
  for (size_t size : {0, 1, 125, 126, 127, 65535, 65536, 70000}) {
    std::string payload(size, '\0');
    for (size_t i = 0; i < size; ++i) payload[i] = static_cast<char>(i * 7);
    std::string plain, masked;
    AppendFrame(plain, Kind::kBinary, payload, std::nullopt);
    AppendFrame(masked, Kind::kBinary, payload, kMask);
    EXPECT_EQ(masked.size(), plain.size() + 4);
    ExpectMessage(plain, Role::kClient, Kind::kBinary, payload);
    ExpectMessage(masked, Role::kServer, Kind::kBinary, payload);
  }
}

TEST(WebSocketDecoder, ControlFramesComeBetweenFragments) {
  const std::string bytes = Masked(0x01, "caf\xc3") + Masked(0x89, "are you there") + Masked(0x00, "") +
                            Masked(0x80, "\xa9") + Masked(0x82, "next");
  for (size_t step : Steps(bytes)) {
    const Decoded got = Decode(bytes, step, Role::kServer);
    ASSERT_EQ(got.messages.size(), 3U);
    EXPECT_EQ(got.messages[0].kind, Kind::kPing);
    EXPECT_EQ(got.messages[0].data, "are you there");
    EXPECT_EQ(got.messages[1].kind, Kind::kText);
    EXPECT_EQ(got.messages[1].data, "caf\xc3\xa9");
    EXPECT_EQ(got.messages[2].data, "next");
    EXPECT_EQ(got.idle, 2U);  // the ping and the empty fragment
  }
}

TEST(WebSocketDecoder, ReadsCloseFrames) {
  const std::string bytes = Masked(0x88, ClosePayload(4001, "caf\xc3\xa9")) + "whatever follows is dropped";
  for (size_t step : Steps(bytes)) {
    const Decoded got = Decode(bytes, step, Role::kServer);
    EXPECT_EQ(got.error, "");
    ASSERT_EQ(got.messages.size(), 1U);
    EXPECT_EQ(got.messages[0].kind, Kind::kClose);
    EXPECT_EQ(got.messages[0].code, 4001);
    EXPECT_EQ(got.messages[0].data, "caf\xc3\xa9");
  }
  const Decoded bare = Decode(Plain(0x88, ""), 1, Role::kClient);
  ASSERT_EQ(bare.messages.size(), 1U);
  EXPECT_EQ(bare.messages[0].code, kCloseNoCode);
}

TEST(WebSocketDecoder, RefusesCloseFramesThatMayNotBe) {
  ExpectFailure(Plain(0x88, "x"), Role::kClient, kCloseProtocol, "half a code");
  for (int code : {0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535})
    ExpectFailure(Plain(0x88, Bytes({code >> 8, code & 255})), Role::kClient, kCloseProtocol, "may not be sent");
  for (uint16_t code : {1000, 1003, 1007, 1014, 3000, 4999})
    EXPECT_EQ(Decode(Plain(0x88, ClosePayload(code, "")), 1, Role::kClient).messages.at(0).code, code);
  ExpectFailure(Plain(0x88, Bytes({3, 0xe8, 0xff})), Role::kClient, kCloseBadText, "reason");
}

TEST(WebSocketDecoder, RefusesBrokenFrames) {
  for (int reserved : {0x40, 0x20, 0x10})
    ExpectFailure(Masked(0x81 | reserved, "x"), Role::kServer, kCloseProtocol, "reserved bit");
  for (int opcode : {3, 4, 5, 6, 7, 11, 12, 13, 14, 15})
    ExpectFailure(Masked(0x80 | opcode, "x"), Role::kServer, kCloseProtocol, "unknown kind");
  ExpectFailure(Plain(0x81, "x"), Role::kServer, kCloseProtocol, "not masked");
  ExpectFailure(Masked(0x81, "x"), Role::kClient, kCloseProtocol, "is masked");
  ExpectFailure(Masked(0x09, "x"), Role::kServer, kCloseProtocol, "fragmented");
  ExpectFailure(Masked(0x89, std::string(126, 'x')), Role::kServer, kCloseProtocol, "longer than 125");
  ExpectFailure(Masked(0x80, "x"), Role::kServer, kCloseProtocol, "without a beginning");
  ExpectFailure(Masked(0x01, "x") + Masked(0x81, "y"), Role::kServer, kCloseProtocol, "inside another");
}

TEST(WebSocketDecoder, RefusesLengthsThatAreNotTheShortest) {
  ExpectFailure(Bytes({0x82, 0x7e, 0, 125}), Role::kClient, kCloseProtocol, "shortest");
  ExpectFailure(Bytes({0x82, 0x7f, 0, 0, 0, 0, 0, 0, 0xff, 0xff}), Role::kClient, kCloseProtocol, "shortest");
  ExpectFailure(Bytes({0x82, 0x7f, 0x80, 0, 0, 0, 0, 1, 0, 0}), Role::kClient, kCloseProtocol, "shortest");
}

TEST(WebSocketDecoder, RefusesTextThatIsNotUtf8AtItsFirstWrongByte) {
  ExpectFailure(Masked(0x81, "ab\xff"), Role::kServer, kCloseBadText, "not UTF-8");
  ExpectFailure(Masked(0x81, "ab\xc3"), Role::kServer, kCloseBadText, "inside a character");
  ExpectFailure(Masked(0x01, "ab\xc3") + Masked(0x80, "("), Role::kServer, kCloseBadText, "not UTF-8");
  // The rest of the frame and of the message has not come.
  const std::string cut = Masked(0x01, "ab\xff and much more").substr(0, 9);
  ExpectFailure(cut, Role::kServer, kCloseBadText, "not UTF-8");
  ExpectMessage(Masked(0x82, "ab\xff"), Role::kServer, Kind::kBinary, "ab\xff");
}

TEST(WebSocketDecoder, RefusesWhatIsTooLargeBeforeItComes) {
  std::string fits, over;
  AppendFrame(fits, Kind::kBinary, std::string(kLimit, 'x'), kMask);
  AppendFrame(over, Kind::kBinary, std::string(kLimit + 1, 'x'), kMask);
  EXPECT_EQ(Decode(fits, fits.size(), Role::kServer).messages.size(), 1U);
  ExpectFailure(over.substr(0, 14), Role::kServer, kCloseTooBig, "larger than");
  ExpectFailure(Bytes({0x82, 0x7f, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), Role::kClient, kCloseTooBig,
                "larger than");
  // Fragments count together.
  const std::string sum = Masked(0x02, "123456") + Masked(0x00, "78901");
  EXPECT_EQ(Decode(sum, 1, Role::kServer, 10).failed_with, kCloseTooBig);
  EXPECT_EQ(Decode(sum, 1, Role::kServer, 11).failed_with, 0);
}

TEST(WebSocketDecoder, StaysFailed) {
  WebSocketDecoder decoder(Role::kServer, kLimit);
  std::optional<WebSocketMessage> message;
  EXPECT_FALSE(decoder.Feed(Masked(0xf1, "x"), &message));
  EXPECT_FALSE(decoder.Feed(Masked(0x81, "x"), &message));
  EXPECT_FALSE(message);
  EXPECT_EQ(decoder.close_code(), kCloseProtocol);
}

// A quadratic decoder would need minutes for this.
TEST(WebSocketDecoder, ManyFragmentsOfOneByteAreLinear) {
  std::string bytes = Masked(0x01, "x");
  const std::string one = Masked(0x00, "x");
  for (size_t i = 0; i < 200'000; ++i) bytes += one;
  bytes += Masked(0x80, "x");
  const Decoded got = Decode(bytes, bytes.size(), Role::kServer);
  ASSERT_EQ(got.messages.size(), 1U);
  EXPECT_EQ(got.messages[0].data.size(), 200'002U);
}

TEST(WebSocketEncoder, CutsTheReasonBetweenCharacters) {
  std::string reason;
  for (int i = 0; i < 100; ++i) reason += "\xe2\x82\xac";
  const std::string payload = ClosePayload(kCloseNormal, reason);
  EXPECT_EQ(payload.size(), 2U + 123U);
  EXPECT_EQ(ClosePayload(kCloseNormal, "x" + reason).size(), 2U + 1U + 120U);
  EXPECT_EQ(Decode(Plain(0x88, payload), 1, Role::kClient).messages.at(0).data, reason.substr(0, 123));
  EXPECT_EQ(ClosePayload(kCloseNoCode, "x"), "");
}

}  // namespace
}  // namespace sandbar::wire
