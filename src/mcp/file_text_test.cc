#include "mcp/file_text.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "wire/tar.h"

namespace sandbar::mcp {
namespace {

using namespace std::string_literals;

std::string Lines(std::string_view text, uint64_t offset, uint64_t limit, size_t cap = 1000, size_t step = 3) {
  LineRange lines(offset, limit, cap);
  for (size_t i = 0; i < text.size() && lines.Feed(text.substr(i, step)); i += step) {
  }
  return lines.Render();
}

TEST(McpFiles, LinesInPieces) {
  const std::string text = "one\ntwo\nthree\nfour";
  for (size_t step : {1, 2, 3, 5, 100}) {
    EXPECT_EQ(Lines(text, 1, 100, 1000, step), text);
    EXPECT_EQ(Lines(text, 2, 2, 1000, step), "two\nthree\n[… more lines; go on with offset 4]");
    EXPECT_EQ(Lines(text, 4, 1, 1000, step), "four");
    EXPECT_EQ(Lines(text, 9, 1, 1000, step), "(no line 9: the file has 4 lines)");
  }
  EXPECT_EQ(Lines("one\ntwo\n", 3, 1), "(no line 3: the file has 2 lines)");
  EXPECT_EQ(Lines("", 1, 5), "(empty file)");
  EXPECT_EQ(Lines("a\n", 1, 1), "a\n");
}

TEST(McpFiles, LongTextIsCutAndSaysWhereToGoOn) {
  EXPECT_EQ(Lines("one\ntwo\nthree\n", 1, 100, 6),
            "one\ntw\n[… cut in line 2 after 6 bytes; go on with offset 2, or use run_command for long lines]");
}

TEST(McpFiles, ImagesByTheirFirstBytes) {
  EXPECT_EQ(ImageType("\x89PNG\r\n\x1a\nrest"), "image/png");
  EXPECT_EQ(ImageType("\xff\xd8\xff\xe0"), "image/jpeg");
  EXPECT_EQ(ImageType("GIF89a"), "image/gif");
  EXPECT_EQ(ImageType("RIFF1234WEBPVP8"), "image/webp");
  EXPECT_EQ(ImageType("RIFF1234WAVE"), "");
  EXPECT_EQ(ImageType("PNG"), "");
  const std::string png = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x1f\x40\0\0\0\x05"s;
  auto size = PngSize(png);
  ASSERT_TRUE(size);
  EXPECT_EQ(size->width, 8000U);
  EXPECT_EQ(size->height, 5U);
  EXPECT_FALSE(PngSize("\x89PNG\r\n\x1a\n"));
  EXPECT_TRUE(LooksBinary("a\0b"s));
  EXPECT_FALSE(LooksBinary("grüße"));
}

TEST(McpFiles, ReplacesExactlyOne) {
  auto one = ReplaceExact("a\nb\nc\n", "b", "$&\\1", false);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->text, "a\n$&\\1\nc\n");
  EXPECT_EQ(one->first_line, 2U);
  auto none = ReplaceExact("abc", "x", "y", true);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("occurs 0 times"), std::string::npos);
  auto two = ReplaceExact("aXbXc", "X", "y", false);
  ASSERT_FALSE(two);
  EXPECT_NE(two.error().message.find("occurs 2 times"), std::string::npos);
  auto all = ReplaceExact("aXbXc", "X", "XX", true);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->text, "aXXbXXc");
  EXPECT_EQ(all->count, 2U);
  EXPECT_FALSE(ReplaceExact("abc", "", "y", false));
  EXPECT_FALSE(ReplaceExact("abc", "b", "b", false));
  EXPECT_EQ(ReplaceExact("aaaa", "aa", "b", true)->text, "bb");
}

struct Sink : wire::TarSink {
  wire::TarEntry entry;
  std::string data;
  Result<> OnEntry(const wire::TarEntry& e) override {
    entry = e;
    return {};
  }
  Result<> OnData(std::string_view bytes) override {
    data += bytes;
    return {};
  }
  Result<> OnEntryEnd() override { return {}; }
};

TEST(McpFiles, AnArchiveThatTheGuestCanRead) {
  const std::string content(100'000, 'z');
  for (const std::string& name : {"a.txt"s, "dir/grüße.txt"s, std::string(200, 'n')}) {
    std::string gzip = ArchiveOf(name, 0751, content);
    std::string tar(1 << 20, '\0');
    z_stream zip{};
    ASSERT_EQ(::inflateInit2(&zip, 15 + 16), Z_OK);
    zip.next_in = reinterpret_cast<Bytef*>(gzip.data());
    zip.avail_in = static_cast<uInt>(gzip.size());
    zip.next_out = reinterpret_cast<Bytef*>(tar.data());
    zip.avail_out = static_cast<uInt>(tar.size());
    EXPECT_EQ(::inflate(&zip, Z_FINISH), Z_STREAM_END);
    tar.resize(zip.total_out);
    ::inflateEnd(&zip);
    Sink sink;
    wire::TarReader reader(&sink);
    ASSERT_TRUE(reader.Feed(tar));
    ASSERT_TRUE(reader.Finish());
    EXPECT_EQ(sink.entry.name, name);
    EXPECT_EQ(sink.entry.mode, 0751U);
    EXPECT_EQ(sink.data, content);
  }
}

}  // namespace
}  // namespace sandbar::mcp
