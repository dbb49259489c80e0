#include "wire/tar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace sandbar::wire {
namespace {

struct Read {
  TarEntry entry;
  std::string bytes;
  bool ended = false;
};

class Collector : public TarSink {
 public:
  Result<> OnEntry(const TarEntry& entry) override {
    entries.push_back(Read{entry, {}, false});
    return {};
  }
  Result<> OnData(std::string_view bytes) override {
    entries.back().bytes += bytes;
    return {};
  }
  Result<> OnEntryEnd() override {
    entries.back().ended = true;
    return {};
  }
  std::vector<Read> entries;
};

Result<std::vector<Read>> ReadAll(std::string_view archive, size_t step = 1 << 20) {
  Collector sink;
  TarReader reader(&sink);
  for (size_t at = 0; at < archive.size(); at += step) SB_TRYV(reader.Feed(archive.substr(at, step)));
  SB_TRYV(reader.Finish());
  return sink.entries;
}

std::string File(const std::string& name, const std::string& bytes, uint32_t mode = 0644) {
  return TarHeader({name, false, mode, bytes.size()}) + bytes + TarPadding(bytes.size());
}

// Overwrites bytes of a header block and makes its checksum right again.
std::string Patch(std::string header, size_t at, std::string_view with) {
  header.replace(at, with.size(), with);
  std::fill(header.begin() + 148, header.begin() + 156, ' ');
  unsigned sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i) sum += static_cast<unsigned char>(header[i]);
  std::snprintf(header.data() + 148, 8, "%06o", sum);
  return header;
}

std::string Extension(char type, const std::string& body) {
  std::string header = TarHeader({"ext", false, 0644, body.size()});
  return Patch(header, 156, std::string(1, type)) + body + TarPadding(body.size());
}

std::string Pax(const std::string& key, const std::string& value) {
  size_t length = key.size() + value.size() + 3;
  size_t total = length + 1;
  while (length + std::to_string(total).size() != total) total = length + std::to_string(total).size();
  return std::to_string(total) + " " + key + "=" + value + "\n";
}

std::string MessageOf(const std::string& archive) {
  auto r = ReadAll(archive);
  EXPECT_FALSE(r);
  if (r) return "";
  EXPECT_EQ(r.error().code, Code::kBadRequest);
  return r.error().message;
}

TEST(Tar, RoundTripInAnySplit) {
  std::string long_name = "dir/" + std::string(200, 'l') + "/" + std::string(200, 'n');
  std::string archive = File("a.txt", "hello", 0755) + File("empty", "") + File(long_name, std::string(1000, 'x')) +
                        File("ünï/cödé", std::string(512, 'y')) + TarHeader({"d/e", true, 0700, 0}) + TarEnd();
  for (size_t step : {size_t{1}, size_t{7}, size_t{512}, size_t{513}, archive.size()}) {
    auto r = ReadAll(archive, step);
    ASSERT_TRUE(r) << r.error().message;
    ASSERT_EQ(r->size(), 5u);
    EXPECT_EQ((*r)[0].entry.name, "a.txt");
    EXPECT_EQ((*r)[0].entry.mode, 0755u);
    EXPECT_EQ((*r)[0].bytes, "hello");
    EXPECT_EQ((*r)[1].bytes, "");
    EXPECT_EQ((*r)[2].entry.name, long_name);
    EXPECT_EQ((*r)[2].bytes, std::string(1000, 'x'));
    EXPECT_EQ((*r)[3].entry.name, "ünï/cödé");
    EXPECT_EQ((*r)[3].bytes.size(), 512u);
    EXPECT_TRUE((*r)[4].entry.directory);
    EXPECT_EQ((*r)[4].entry.name, "d/e");
    for (const auto& e : *r) EXPECT_TRUE(e.ended);
  }
}

TEST(Tar, NamesAreNormalised) {
  auto r = ReadAll(File("./a//b/./c", "x") + TarHeader({".", true, 0755, 0}) + TarEnd());
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ((*r)[0].entry.name, "a/b/c");
  EXPECT_EQ((*r)[1].entry.name, "");
  EXPECT_TRUE((*r)[1].entry.directory);
}

TEST(Tar, PrefixFieldOfUstar) {
  std::string header = Patch(TarHeader({"file", false, 0644, 0}), 345, "some/prefix");
  auto r = ReadAll(header + TarEnd());
  ASSERT_TRUE(r);
  EXPECT_EQ((*r)[0].entry.name, "some/prefix/file");
  // GNU's magic: those bytes mean something else.
  std::string gnu = Patch(header, 257, std::string("ustar  \0", 8));
  EXPECT_EQ((*ReadAll(gnu + TarEnd()))[0].entry.name, "file");
}

TEST(Tar, GnuLongNameIsForOneEntryOnly) {
  std::string name = std::string(200, 'g') + "/" + std::string(200, 'h');
  auto r = ReadAll(Extension('L', name + '\0') + File("short", "x") + File("next", "y") + TarEnd());
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ((*r)[0].entry.name, name);
  EXPECT_EQ((*r)[1].entry.name, "next");
}

TEST(Tar, PaxRecordsThatMatterAndThoseThatDoNot) {
  std::string pax = Pax("mtime", "1700000000.123456789") + Pax("path", "p/q.txt");
  auto r = ReadAll(Extension('g', Pax("comment", "x")) + Extension('x', pax) + File("ignored", "data") + TarEnd());
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ((*r)[0].entry.name, "p/q.txt");
  EXPECT_EQ((*r)[0].bytes, "data");
}

TEST(Tar, PaxSizeOverridesTheHeader) {
  std::string header = TarHeader({"f", false, 0644, 0});
  auto r = ReadAll(Extension('x', Pax("size", "5")) + header + "12345" + TarPadding(5) + File("g", "z") + TarEnd());
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ((*r)[0].bytes, "12345");
  EXPECT_EQ((*r)[1].bytes, "z");
}

TEST(Tar, BadPaxIsRefused) {
  for (const std::string& pax :
       {std::string("x path=a\n"), std::string("999 path=a\n"), std::string("11 path=a\n"), std::string("9 path=a "),
        std::string("9 path a\n"), std::string("4 a\n"), std::string("6 =ab\n"), Pax("size", ""), Pax("size", "x"),
        Pax("size", "-1"), Pax("size", "99999999999999999999"), Pax("path", ""), Pax("GNU.sparse.major", "1")})
    EXPECT_NE(MessageOf(Extension('x', pax) + File("f", "") + TarEnd()), "") << pax;
  EXPECT_NE(MessageOf(Extension('x', "") + File("f", "") + TarEnd()), "");
  EXPECT_NE(MessageOf(Extension('x', Pax("size", "5")) + TarEnd()), "");
  EXPECT_NE(MessageOf(Extension('L', std::string(kMaxTarExtension + 1, 'x')) + TarEnd()), "");
}

TEST(Tar, LinksAndDevicesAreRefusedByName) {
  for (auto [type, word] : std::vector<std::pair<char, std::string>>{{'1', "hard link"},
                                                                     {'2', "symbolic link"},
                                                                     {'3', "device"},
                                                                     {'4', "device"},
                                                                     {'6', "FIFO"},
                                                                     {'S', "type"}}) {
    std::string header = Patch(TarHeader({"evil-name", false, 0644, 0}), 156, std::string(1, type));
    auto message = MessageOf(header + TarEnd());
    EXPECT_NE(message.find(word), std::string::npos) << message;
    EXPECT_NE(message.find("evil-name"), std::string::npos) << message;
  }
}

Result<std::vector<Read>> ReadTaking(std::string_view archive, TarTakes takes) {
  Collector sink;
  TarReader reader(&sink, takes);
  SB_TRYV(reader.Feed(archive));
  SB_TRYV(reader.Finish());
  return sink.entries;
}

TarEntry Link(const std::string& name, const std::string& target) {
  TarEntry entry{name};
  entry.kind = TarEntry::Kind::kSymlink;
  entry.target = target;
  return entry;
}

TEST(Tar, LinksArriveWithTheirTargetWhereTheyAreTaken) {
  const std::string far(300, 't');
  TarEntry dated = Link("dated", "x");
  dated.mtime = 1'234'567'890;
  dated.mtime_given = true;
  auto got = ReadTaking(TarHeader(Link("up", "../../etc/passwd")) + TarHeader(Link("root", "/etc")) +
                            TarHeader(Link("far", far)) + TarHeader(Link("odd", "\xff\n")) + TarHeader(dated) +
                            File("f", "f") + TarEnd(),
                        {.symlinks = true});
  ASSERT_TRUE(got) << got.error().message;
  ASSERT_EQ(got->size(), 6U);
  const std::vector<std::string> targets = {"../../etc/passwd", "/etc", far, "\xff\n", "x"};
  for (size_t i = 0; i < targets.size(); ++i) {
    EXPECT_EQ(got->at(i).entry.kind, TarEntry::Kind::kSymlink);
    EXPECT_EQ(got->at(i).entry.target, targets[i]);
    EXPECT_TRUE(got->at(i).ended);
  }
  EXPECT_TRUE(got->at(4).entry.mtime_given);
  EXPECT_EQ(got->at(4).entry.mtime, 1'234'567'890);
  EXPECT_EQ(got->at(5).entry.kind, TarEntry::Kind::kPlain);
  EXPECT_EQ(got->at(5).entry.target, "");
  EXPECT_FALSE(got->at(5).entry.mtime_given);
}

TEST(Tar, GnuLongTargets) {
  const std::string far(200, 'k');
  auto got = ReadTaking(Extension('K', far + std::string(1, '\0')) + TarHeader(Link("l", "short")) + TarEnd(),
                        {.symlinks = true});
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->at(0).entry.target, far);
  EXPECT_FALSE(ReadTaking(TarHeader(Link("l", "")) + TarEnd(), {.symlinks = true})) << "without a target";
  const std::string nul = Extension('x', Pax("linkpath", std::string("a\0b", 3)));
  EXPECT_FALSE(ReadTaking(nul + TarHeader(Link("l", "x")) + TarEnd(), {.symlinks = true}));
}

TEST(Tar, OthersCanBeNamedByTheCaller) {
  for (char type : {'1', '3', '4', '6'}) {
    // A size in the header of something without contents says nothing.
    std::string header = Patch(TarHeader({"odd", false, 0644, 512}), 156, std::string(1, type));
    auto got = ReadTaking(header + File("after", "a") + TarEnd(), {.others = true});
    ASSERT_TRUE(got) << type << got.error().message;
    ASSERT_EQ(got->size(), 2U);
    EXPECT_EQ(got->at(0).entry.kind, TarEntry::Kind::kOther);
    EXPECT_EQ(got->at(1).bytes, "a");
  }
}

TEST(Tar, NamesThatLeaveTheTargetAreRefused) {
  for (const char* name : {"/etc/passwd", "..", "../x", "a/../x", "a/..", "a/b/../../../x"})
    EXPECT_NE(MessageOf(File(name, "x") + TarEnd()), "") << name;
  EXPECT_NE(MessageOf(Extension('x', Pax("path", std::string("a\0b", 3))) + File("f", "") + TarEnd()), "");
  EXPECT_NE(MessageOf(File(std::string(256, 'x'), "") + TarEnd()), "");
  EXPECT_NE(MessageOf(File(std::string(200, 'x') + std::string(4000, '/') + "y", "") + TarEnd()), "");
  EXPECT_NE(MessageOf(Patch(TarHeader({"x", false, 0644, 0}), 0, std::string(1, '\0')) + TarEnd()), "");
}

TEST(Tar, TruncationIsAnErrorEverywhere) {
  std::string archive = File("f", std::string(700, 'x')) + File("g", "y") + TarEnd();
  for (size_t n = 0; n < archive.size() - 2 * kTarBlock + kTarBlock; n += 64)
    EXPECT_FALSE(ReadAll(archive.substr(0, n))) << n;
  EXPECT_TRUE(ReadAll(archive));
  EXPECT_TRUE(ReadAll(archive.substr(0, archive.size() - kTarBlock)));  // one zero block is enough
  EXPECT_TRUE(ReadAll(archive + "trailing rubbish"));
}

TEST(Tar, DamagedHeadersAreRefused) {
  std::string good = File("f", "x");
  std::string sum = good;
  sum[0] = 'g';
  EXPECT_NE(MessageOf(sum + TarEnd()).find("checksum"), std::string::npos);
  EXPECT_NE(MessageOf(Patch(good, 257, "USTAR") + TarEnd()), "");
  EXPECT_NE(MessageOf(Patch(good, 124, "00000000x00") + TarEnd()), "");
  EXPECT_NE(MessageOf(Patch(good, 124, std::string(12, '\xff')) + TarEnd()), "");  // negative
  EXPECT_NE(MessageOf(Patch(good, 124, std::string("\x80\x7f") + std::string(10, '\xff')) + TarEnd()), "");
  EXPECT_NE(MessageOf(Patch(TarHeader({"d", true, 0755, 0}), 124, "00000000007") + TarEnd()), "");
}

TEST(Tar, ModeIsMaskedToPermissions) {
  auto r = ReadAll(Patch(File("f", ""), 100, "0106755") + TarEnd());
  ASSERT_TRUE(r);
  EXPECT_EQ((*r)[0].entry.mode, 0755u);
}

TEST(Tar, Base256SizeWorks) {
  std::string header = Patch(TarHeader({"f", false, 0644, 0}), 124, std::string("\x80\0\0\0\0\0\0\0\0\0\0\3", 12));
  auto r = ReadAll(header + "abc" + TarPadding(3) + TarEnd());
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ((*r)[0].bytes, "abc");
}

TEST(Tar, SinkErrorsStopTheReader) {
  class Refuser : public Collector {
    Result<> OnData(std::string_view) override { return FailErrno("write", ENOSPC); }
  } sink;
  TarReader reader(&sink);
  auto r = reader.Feed(File("f", "x") + TarEnd());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().sys_errno, ENOSPC);
}

}  // namespace
}  // namespace sandbar::wire
