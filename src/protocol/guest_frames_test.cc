#include "protocol/guest_frames.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace sandbar::protocol {
namespace {

template <class Frame>
std::vector<Frame> DecodeAll(std::string_view bytes, size_t step) {
  FrameDecoder<Frame> decoder;
  std::vector<Frame> out;
  for (size_t at = 0; at < bytes.size(); at += step) {
    decoder.Feed(bytes.substr(at, step));
    Frame frame;
    for (;;) {
      auto got = decoder.Next(frame);
      EXPECT_TRUE(got) << got.error().message;
      if (!got || !*got) break;
      out.push_back(frame);
    }
  }
  return out;
}

std::vector<HostFrame> HostSamples() {
  Exec exec{"cmd_1", {"sh", "-c", ""}, {"A=b", ""}, "/tmp", 1000, 1001, "user", 123456789012};
  return {Hello{1, 42},
          exec,
          Ack{"cmd_1", 99},
          ExitAck{"cmd_1"},
          Kill{"cmd_1", 9},
          Credit{7, 65536},
          ReadFile{7, "a/b", "/", 1, 2, "u"},
          WriteTar{8, "/", 1, 2, "u", false},
          MakeDir{{9, "d", "/x", 1, 2, "u"}, true, {}},
          Data{8, std::string("\0\xff", 2)},
          End{8},
          Abort{7},
          Quiesce{5000, true},
          Input{"cmd_1", "run\n"},
          Gone{},
          Dial{10, 3000},
          PackTree{11, "/data"},
          UnpackTree{12, "/"},
          Rekey{"entropy", 1234567890123456789, {{"cmd_1", "cmd_2"}}, "k3y"},
          Stdin{"cmd_1", 7, "text"},
          StdinEnd{"cmd_1", 11},
          Resize{"cmd_1", {80, 24}},
          ListDir{{10, "d", "/x", 1, 2, "u"}, "after", 100},
          StatFile{{11, "d", "/x", 1, 2, "u"}, false},
          WriteFile{{12, "d", "/x", 1, 2, "u"}, 5, true, true, false, true, true, 0640},
          SetAttributes{{13, "d", "/x", 1, 2, "u"}, true, 9, 1, std::nullopt, 0644, std::nullopt, -5},
          RenameFile{{14, "d", "/x", 1, 2, "u"}, "e", true},
          RemoveFile{{15, "d", "/x", 1, 2, "u"}, RemoveFile::What::kTree},
          MakeLink{{16, "d", "/x", 1, 2, "u"}, "target", false}};
}

std::vector<GuestFrame> GuestSamples() {
  return {HelloAck{1, 42, {{"cmd_1", 5, false}, {"cmd_2", 0, true}}},
          ExecStarted{"cmd_1", 77},
          ExecFailed{"cmd_1", ExecFailure::kBadCwd, "no such directory"},
          Output{"cmd_1", 10, 2, "text"},
          Gap{"cmd_1", 14, 1000},
          Exit{"cmd_1", 137, true, 12345, 1014, true},
          Credit{3, 1},
          Data{3, "x"},
          End{3},
          FileError{4, FileErrorKind::kNoSpace, "full"},
          Quiesced{true, 3},
          Dialed{10},
          Rekeyed{},
          StdinTaken{"cmd_1", 7},
          StdinClosed{"cmd_1"}};
}

// Encoding is injective, so equal bytes mean equal frames.
template <class Frame>
void RoundTrip(const std::vector<Frame>& samples) {
  ASSERT_EQ(samples.size(), std::variant_size_v<Frame>) << "a frame type without a sample";
  std::string bytes;
  for (const auto& f : samples) bytes += Encode(f);
  for (size_t step : {size_t{1}, size_t{3}, size_t{17}, bytes.size()}) {
    auto got = DecodeAll<Frame>(bytes, step);
    ASSERT_EQ(got.size(), samples.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].index(), i);
      EXPECT_EQ(Encode(got[i]), Encode(samples[i]));
    }
  }
}

TEST(GuestFrames, EveryHostFrameSurvivesAnySplit) {
  RoundTrip(HostSamples());
}

TEST(GuestFrames, EveryGuestFrameSurvivesAnySplit) {
  RoundTrip(GuestSamples());
}

TEST(GuestFrames, TheChannelIsAskedForByOneMoreByteAndOnlyThen) {
  Exec plain{"cmd_1", {"sh"}, {}, "/tmp", 1, 2, "user", 0};
  Exec with = plain;
  with.channel = Channel::kStandardInput;
  EXPECT_EQ(Encode(with).size(), Encode(plain).size() + 1);
  auto got = DecodeAll<HostFrame>(Encode(Hello{}) + Encode(plain) + Encode(with), 7);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(std::get<Exec>(got[1]).channel, Channel::kNone);
  EXPECT_EQ(std::get<Exec>(got[2]).channel, Channel::kStandardInput);
  std::string odd = Encode(with);
  odd.back() = 3;
  FrameDecoder<HostFrame> decoder(true);
  decoder.Feed(odd);
  HostFrame frame;
  EXPECT_FALSE(decoder.Next(frame));
}

TEST(GuestFrames, InputAndTerminalAreFieldsOfVersion3) {
  Exec plain{"cmd_1", {"sh"}, {}, "/tmp", 1, 2, "user", 0};
  Exec input = plain, terminal = plain, both = plain;
  input.standard_input = both.standard_input = true;
  terminal.terminal = TerminalSize{};
  both.terminal = TerminalSize{kMaxTerminalSide, 1};
  auto got = DecodeAll<HostFrame>(Encode(Hello{}) + Encode(plain) + Encode(input) + Encode(terminal) + Encode(both), 5);
  ASSERT_EQ(got.size(), 5u);
  EXPECT_FALSE(std::get<Exec>(got[1]).TakesInput());
  EXPECT_TRUE(std::get<Exec>(got[2]).standard_input);
  EXPECT_FALSE(std::get<Exec>(got[2]).terminal);
  EXPECT_FALSE(std::get<Exec>(got[3]).standard_input);
  EXPECT_EQ(std::get<Exec>(got[3]).terminal, TerminalSize{});
  EXPECT_EQ(std::get<Exec>(got[4]).terminal, (TerminalSize{kMaxTerminalSide, 1}));
  // An agent of version 2 reads the fields that it knows and ignores the rest.
  EXPECT_EQ(Encode(input).substr(5, Encode(plain).size() - 5), Encode(plain).substr(5));
  const HelloAck old{1, 42, {{"a", 1, true}}, "k3y"};
  HelloAck with = old;
  with.stdins = {{"a", 5, 4, true, false}};
  EXPECT_EQ(Encode(GuestFrame(with)).substr(13, Encode(GuestFrame(old)).size() - 13),
            Encode(GuestFrame(old)).substr(13));
  auto ack = DecodeAll<GuestFrame>(Encode(GuestFrame(with)), 7);
  ASSERT_EQ(ack.size(), 1u);
  EXPECT_EQ(std::get<HelloAck>(ack[0]).stdins, with.stdins);
}

TEST(GuestFrames, FieldsArriveAsSent) {
  auto got = DecodeAll<HostFrame>(Encode(Hello{}) + Encode(HostSamples()[1]), 1000);
  ASSERT_EQ(got.size(), 2u);
  const auto& e = std::get<Exec>(got[1]);
  EXPECT_EQ(e.id, "cmd_1");
  EXPECT_EQ(e.argv, (std::vector<std::string>{"sh", "-c", ""}));
  EXPECT_EQ(e.env, (std::vector<std::string>{"A=b", ""}));
  EXPECT_EQ(e.cwd, "/tmp");
  EXPECT_EQ(e.uid, 1000u);
  EXPECT_EQ(e.gid, 1001u);
  EXPECT_EQ(e.user, "user");
  EXPECT_EQ(e.timeout_ms, 123456789012u);
}

TEST(GuestFrames, DiscardsUntilTheMagic) {
  std::string junk = std::string("half a frame\0\0\xff", 15) + "\x7fSAND\x7f\x7fSANDBA";
  for (size_t step : {1, 5, 1000}) {
    auto got = DecodeAll<HostFrame>(junk + Encode(Hello{1, 8}) + Encode(HostFrame(End{1})), step);
    ASSERT_EQ(got.size(), 2u);
    EXPECT_EQ(std::get<Hello>(got[0]).nonce, 8u);
  }
}

TEST(GuestFrames, DiscardingKeepsNothing) {
  FrameDecoder<GuestFrame> decoder;
  GuestFrame frame;
  for (int i = 0; i < 100; ++i) {
    decoder.Feed(std::string(1 << 16, '\x7f'));
    auto got = decoder.Next(frame);
    ASSERT_TRUE(got);
    EXPECT_FALSE(*got);
    EXPECT_LT(decoder.buffered(), kGuestMagic.size());
  }
}

TEST(GuestFrames, ResyncSkipsToTheNextHello) {
  FrameDecoder<GuestFrame> decoder;
  decoder.Feed(Encode(HelloAck{1, 1, {}}) + Encode(GuestFrame(Data{1, "old"})) + "half" + Encode(HelloAck{1, 2, {}}));
  GuestFrame frame;
  ASSERT_TRUE(*decoder.Next(frame));
  EXPECT_EQ(std::get<HelloAck>(frame).nonce, 1u);
  decoder.Resync();
  ASSERT_TRUE(*decoder.Next(frame));
  EXPECT_EQ(std::get<HelloAck>(frame).nonce, 2u);
  EXPECT_FALSE(*decoder.Next(frame));
}

// What a peer of version 1 sees of a hello: it discards up to the magic that it knows.
std::string SeenByVersion1(const std::string& bytes) {
  size_t at = bytes.find(kGuestMagic);
  if (at == std::string::npos) at = bytes.find(kStreamMagic);
  return bytes.substr(at);
}

TEST(GuestVersions, TheNewestStandsBeforeAHelloOfVersion1) {
  const Hello plain{1, 42}, both{1, 42, 2};
  EXPECT_EQ(Encode(both).substr(0, kVersionsMagic.size()), kVersionsMagic);
  EXPECT_EQ(SeenByVersion1(Encode(both)), Encode(plain));
  const GuestFrame old_ack = HelloAck{1, 42, {{"a", 1, true}}, "k3y"},
                   ack = HelloAck{1, 42, {{"a", 1, true}}, "k3y", 2};
  EXPECT_EQ(SeenByVersion1(Encode(ack)), Encode(old_ack));
  EXPECT_EQ(SeenByVersion1(EncodeForStream(ack)), EncodeForStream(old_ack));
}

TEST(GuestVersions, EachHelloSaysItsOwn) {
  const std::string bytes = "rubbish" + Encode(HostFrame(Hello{1, 1, 5})) + EncodeForStream(HostFrame(End{1})) +
                            Encode(HostFrame(Hello{1, 2})) + std::string(kVersionsMagic) + "\x09 and nothing more" +
                            Encode(HostFrame(Hello{3, 3})) + "half" + std::string(kVersionsMagic) +
                            Encode(HostFrame(Hello{2, 4, 126})) + Encode(HostFrame(Hello{7, 5, 6}));
  for (size_t step : {size_t{1}, size_t{3}, size_t{17}, bytes.size()}) {
    FrameDecoder<HostFrame> decoder;
    decoder.SetStream();
    std::vector<VersionRange> got;
    for (size_t at = 0; at < bytes.size(); at += step) {
      decoder.Feed(std::string_view(bytes).substr(at, step));
      HostFrame frame;
      for (auto next = decoder.Next(frame); next && *next; next = decoder.Next(frame))
        if (const auto* hello = std::get_if<Hello>(&frame)) got.push_back(hello->versions());
    }
    if (step == 1) {
      EXPECT_EQ(got, (std::vector<VersionRange>{{1, 5}, {1, 1}, {3, 3}, {2, 126}, {7, 7}}));
    } else {
      EXPECT_EQ(got.back(), (VersionRange{7, 7})) << step;  // fed at once, a magic drops what nobody took
    }
  }
}

TEST(GuestVersions, TheHighestCommonOneIsUsed) {
  EXPECT_EQ(HighestCommon({1, 1}, {1, 3}), 1u);
  EXPECT_EQ(HighestCommon({2, 4}, {1, 3}), 3u);
  EXPECT_EQ(HighestCommon({1, 2}, {3, 4}), 0u);
  EXPECT_EQ(HighestCommon({3, 4}, {1, 2}), 0u);
  EXPECT_EQ(Describe({1, 1}), "version 1");
  EXPECT_EQ(Describe({1, 3}), "versions 1 to 3");
  EXPECT_TRUE(GuestVersions().Has(kOldestGuestVersion));
}

// The same as bytes of one session on a stream.
template <class Frame>
std::string Session(const std::vector<Frame>& frames) {
  std::string bytes;
  for (const auto& f : frames) bytes += EncodeForStream(f);
  return bytes;
}

template <class Frame>
std::vector<std::string> DecodeStream(std::string_view bytes, size_t step) {
  FrameDecoder<Frame> decoder;
  decoder.SetStream();
  std::vector<std::string> out;
  for (size_t at = 0; at < bytes.size(); at += step) {
    decoder.Feed(bytes.substr(at, step));
    Frame frame;
    for (;;) {
      auto got = decoder.Next(frame);
      EXPECT_TRUE(got) << got.error().message;
      if (!got || !*got) break;
      out.push_back(Encode(frame));
    }
  }
  return out;
}

TEST(GuestStream, NoFrameCanContainAMagic) {
  std::string magic(kGuestMagic);
  std::vector<HostFrame> frames = {Data{1, magic}, Data{1, std::string(kStreamMagic) + std::string(3, '\0') + "\x7f"},
                                   Data{1, std::string("\0SANDBAR", 8) + "\x7f\x7f" + magic}, Data{0x7f7f7f7f, "x"}};
  std::string bytes = Session(frames);
  EXPECT_EQ(bytes.find(kGuestMagic), std::string::npos);
  EXPECT_EQ(bytes.find(kStreamMagic), std::string::npos);
  bytes = Encode(HostFrame(Hello{1, 5})) + bytes;
  for (size_t step : {size_t{1}, size_t{3}, size_t{17}, bytes.size()}) {
    auto got = DecodeStream<HostFrame>(bytes, step);
    ASSERT_EQ(got.size(), frames.size() + 1);
    for (size_t i = 0; i < frames.size(); ++i) EXPECT_EQ(got[i + 1], Encode(frames[i])) << i;
  }
}

TEST(GuestStream, TheAgentsMagicTellsWhatItIs) {
  auto sent = std::vector<GuestFrame>{HelloAck{1, 0x7f, {{"a", 0x7f00, false}}}, Data{1, "\x7f"}};
  for (bool stream : {false, true}) {
    std::string bytes = stream ? Session(sent) : Encode(sent[0]) + Encode(sent[1]);
    FrameDecoder<GuestFrame> decoder;
    decoder.Feed("left over\x7f" + bytes);
    for (const auto& f : sent) {
      GuestFrame frame;
      auto got = decoder.Next(frame);
      ASSERT_TRUE(got && *got);
      EXPECT_EQ(Encode(frame), Encode(f));
    }
    EXPECT_EQ(decoder.stream(), stream);
  }
}

TEST(GuestStream, GoneIsWhatHoldersSend) {
  auto got = DecodeStream<HostFrame>("half" + std::string(kGuestGone), 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0], Encode(HostFrame(Gone{})));
}

TEST(GuestStream, TheMagicCutsAnyFrameShort) {
  std::string old = Session<GuestFrame>({HelloAck{1, 1, {}}, Data{1, std::string(300, 'a')}});
  std::string fresh = Session<GuestFrame>({HelloAck{1, 2, {}}, Data{2, "new"}});
  for (size_t cut = 0; cut < old.size(); ++cut) {
    auto got = DecodeStream<GuestFrame>(old.substr(0, cut) + fresh, 1);
    // Nothing of the cut frame comes out.
    ASSERT_EQ(got.size(), cut < Session<GuestFrame>({HelloAck{1, 1, {}}}).size() ? 2u : 3u) << cut;
    EXPECT_EQ(got[got.size() - 2], Encode(GuestFrame(HelloAck{1, 2, {}}))) << cut;
    EXPECT_EQ(got.back(), Encode(GuestFrame(Data{2, "new"}))) << cut;
  }
}

TEST(GuestStream, AfterTheHelloNothingMayStandBetweenFrames) {
  const GuestFrame ack = HelloAck{};
  const GuestFrame data = Data{1, "x\x7fy"};
  for (const std::string& rubbish :
       {std::string("\x7fno escape"), std::string("\x7f\x7f"), std::string(kStreamMagic), EncodeForStream(ack)}) {
    FrameDecoder<GuestFrame> decoder;
    GuestFrame frame;
    decoder.Feed(EncodeForStream(ack));
    ASSERT_TRUE(decoder.Next(frame).value());
    decoder.ForbidMagic();
    decoder.Feed(EncodeForStream(data));
    ASSERT_TRUE(decoder.Next(frame).value());
    EXPECT_EQ(std::get<Data>(frame).bytes, "x\x7fy");
    EXPECT_FALSE(decoder.incomplete());
    decoder.Feed(rubbish);
    auto got = decoder.Next(frame);
    ASSERT_FALSE(got) << rubbish;
    EXPECT_EQ(got.error().code, Code::kProtocol);
  }
}

TEST(GuestStream, DiscardingKeepsNothing) {
  FrameDecoder<HostFrame> decoder;
  decoder.SetStream();
  for (int i = 0; i < 100; ++i) decoder.Feed(std::string(1 << 16, 'x'));
  EXPECT_EQ(decoder.buffered(), 0u);
}

// A frame by hand: type and payload.
std::string Raw(uint8_t type, std::string_view payload) {
  ByteWriter w;
  w.U32(static_cast<uint32_t>(payload.size() + 1));
  w.U8(type);
  w.Raw(payload);
  return w.Take();
}

template <class Frame>
bool Accepts(std::string_view bytes) {
  FrameDecoder<Frame> decoder(true);
  decoder.Feed(bytes);
  Frame frame;
  auto got = decoder.Next(frame);
  EXPECT_TRUE(got || got.error().code == Code::kProtocol);
  return got.has_value();
}

TEST(GuestFrames, RefusesLengthsAndTypesOutOfRange) {
  EXPECT_FALSE(Accepts<HostFrame>(std::string(4, '\0')));
  ByteWriter huge;
  huge.U32(kMaxFrame + 1);
  EXPECT_FALSE(Accepts<HostFrame>(huge.str()));
  for (int type : {0, 14, 18, 64, 65, 200, 255}) EXPECT_FALSE(Accepts<HostFrame>(Raw(static_cast<uint8_t>(type), "")));
  for (int type : {0, 1, 64, 78, 255}) EXPECT_FALSE(Accepts<GuestFrame>(Raw(static_cast<uint8_t>(type), "")));
}

TEST(GuestFrames, AKeyIsAtTheEndOfTheAnswerAndOnlyWhenThereIsOne) {
  const HelloAck plain{1, 2, {{"a", 3, false}}};
  HelloAck keyed = plain;
  keyed.machine_key = "k3y";
  EXPECT_EQ(Encode(GuestFrame(keyed)).size(), Encode(GuestFrame(plain)).size() + 4 + 3);
  auto got = DecodeAll<GuestFrame>(Encode(GuestFrame(keyed)), 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(std::get<HelloAck>(got[0]).machine_key, "k3y");
  keyed.machine_key = std::string(kMaxMachineKey + 1, 'k');
  EXPECT_FALSE(Accepts<GuestFrame>(Encode(GuestFrame(keyed)).substr(kGuestMagic.size())));
}

TEST(GuestFrames, RefusesTruncatedPayloadsAndIgnoresFieldsThatItDoesNotKnow) {
  auto probe = [](const auto& samples, auto accepts) {
    for (const auto& f : samples) {
      std::string bytes = Encode(f);
      if (bytes.starts_with(kGuestMagic)) bytes.erase(0, kGuestMagic.size());
      auto type = static_cast<uint8_t>(bytes[4]);
      std::string payload = bytes.substr(5);
      EXPECT_TRUE(accepts(bytes));
      bool open_ended = std::visit([](const auto& m) { return requires { m.bytes.data(); }; }, f);
      if (open_ended) continue;  // its last field is "the rest"
      // Optional fields come before the unknown ones.
      auto optional = [](const auto& m) -> size_t {
        if constexpr (requires { m.argv; }) return 1 + 1 + 9;  // channel, input, terminal
        if constexpr (requires { m.machine_key, m.stdins; }) return 4 + 4;
        if constexpr (requires { m.length; }) return 8 + 8;     // offset, length
        if constexpr (requires { m.recursive; }) return 1 + 4;  // mode
        return 0;
      };
      const std::string known(std::visit(optional, f), '\0');
      EXPECT_TRUE(accepts(Raw(type, payload + known + "later"))) << int{type};
      for (size_t n = 0; n < payload.size(); ++n) EXPECT_FALSE(accepts(Raw(type, payload.substr(0, n)))) << int{type};
    }
  };
  probe(HostSamples(), [](std::string_view b) { return Accepts<HostFrame>(b); });
  probe(GuestSamples(), [](std::string_view b) { return Accepts<GuestFrame>(b); });
}

TEST(GuestFrames, RefusesValuesOutOfBounds) {
  auto guest = [](const GuestFrame& f) {
    std::string bytes = Encode(f);
    if (bytes.starts_with(kGuestMagic)) bytes.erase(0, kGuestMagic.size());
    return Accepts<GuestFrame>(bytes);
  };
  auto host = [](const HostFrame& f) { return Accepts<HostFrame>(Encode(f)); };
  EXPECT_FALSE(guest(Output{"", 0, 1, "x"}));
  EXPECT_FALSE(guest(Output{std::string(kMaxCommandId + 1, 'i'), 0, 1, "x"}));
  EXPECT_TRUE(guest(Output{"a", 0, 3, "x"}));
  EXPECT_FALSE(guest(Output{"a", 0, 4, "x"}));
  EXPECT_FALSE(guest(Output{"a", 0, 0, "x"}));
  EXPECT_FALSE(guest(Output{"a", 0, 1, ""}));
  EXPECT_FALSE(guest(Output{"a", kMaxOffset + 1, 1, "x"}));
  EXPECT_FALSE(guest(Output{"a", 0, 1, std::string(kMaxData + 1, 'x')}));
  EXPECT_TRUE(guest(Output{"a", 0, 1, std::string(kMaxData, 'x')}));
  EXPECT_FALSE(guest(Gap{"a", 0, 0}));
  EXPECT_FALSE(guest(Gap{"a", 0, UINT64_MAX}));
  EXPECT_FALSE(guest(Exit{"a", -1, false, 0, 0}));
  EXPECT_FALSE(guest(Exit{"a", 256, false, 0, 0}));
  EXPECT_FALSE(guest(Credit{1, 0}));
  EXPECT_FALSE(guest(FileError{1, static_cast<FileErrorKind>(99), ""}));
  EXPECT_FALSE(guest(FileError{1, FileErrorKind::kOther, std::string(kMaxErrorText + 1, 'x')}));
  EXPECT_FALSE(guest(ExecFailed{"a", static_cast<ExecFailure>(7), ""}));
  EXPECT_FALSE(guest(HelloAck{1, 1, std::vector<CommandState>(kMaxCommands + 1, CommandState{"a", 0, false})}));
  EXPECT_TRUE(
      guest(HelloAck{1, 1, std::vector<CommandState>(kMaxCommands, CommandState{std::string(kMaxCommandId, 'a')})}));
  EXPECT_FALSE(host(Exec{"a", {}, {}, "/"}));
  EXPECT_FALSE(host(Exec{"a", {"x"}, {}, std::string(kMaxPath + 1, 'x')}));
  EXPECT_FALSE(host(Dial{1, 0}));
  EXPECT_FALSE(host(Rekey{std::string(kMaxEntropy + 1, 'x'), 0, {}}));
  EXPECT_FALSE(host(Rekey{"", 0, {{"cmd_1", ""}}}));
  EXPECT_FALSE(host(Rekey{"", 0, {{std::string(kMaxCommandId + 1, 'x'), "cmd_2"}}}));
  EXPECT_FALSE(host(Stdin{"a", 0, ""}));
  EXPECT_FALSE(host(Stdin{"", 0, "x"}));
  EXPECT_FALSE(host(Stdin{"a", kMaxOffset + 1, "x"}));
  EXPECT_FALSE(host(Stdin{"a", 0, std::string(kMaxData + 1, 'x')}));
  EXPECT_TRUE(host(Stdin{"a", kMaxOffset, std::string(kMaxData, 'x')}));
  EXPECT_FALSE(host(StdinEnd{"a", kMaxOffset + 1}));
  EXPECT_FALSE(host(Resize{"a", {kMaxTerminalSide + 1, 1}}));
  EXPECT_FALSE(host(Resize{"a", {1, UINT32_MAX}}));
  EXPECT_TRUE(host(Resize{"a", {kMaxTerminalSide, 0}}));
  Exec terminal{"a", {"x"}, {}, "/"};
  terminal.terminal = TerminalSize{1, kMaxTerminalSide + 1};
  EXPECT_FALSE(host(terminal));
  EXPECT_FALSE(guest(StdinTaken{"a", kMaxOffset + 1}));
  EXPECT_FALSE(guest(StdinClosed{""}));
  EXPECT_FALSE(guest(HelloAck{1, 1, {}, "", 0, {{"a", 1, 2, false, false}}}));
  EXPECT_FALSE(guest(HelloAck{1, 1, {}, "", 0, std::vector<StdinState>(kMaxCommands + 1, StdinState{"a"})}));
  EXPECT_FALSE(host(Kill{"a", 0}));
  EXPECT_FALSE(host(Kill{"a", 65}));
  EXPECT_FALSE(host(ReadFile{1, std::string(kMaxPath + 1, 'x'), "/"}));
  EXPECT_FALSE(host(ReadFile{1, "f", "/", 0, 0, "", kMaxOffset + 1}));
  EXPECT_FALSE(host(ReadFile{1, "f", "/", 0, 0, "", 0, kMaxOffset + 1}));
  const FilePlace place{1, "f", "/"};
  EXPECT_FALSE(host(ListDir{place, "", 0}));
  EXPECT_FALSE(host(ListDir{place, "", kMaxListed + 1}));
  EXPECT_FALSE(host(MakeDir{place, true, kMaxMode + 1}));
  WriteFile write{place};
  write.mode = kMaxMode + 1;
  EXPECT_FALSE(host(write));
  SetAttributes attributes{place};
  attributes.size = kMaxOffset + 1;
  EXPECT_FALSE(host(attributes));
  EXPECT_FALSE(host(RenameFile{place, std::string(kMaxPath + 1, 'x')}));
}

}  // namespace
}  // namespace sandbar::protocol
