// Archives that a stranger made.
#include "cli/archive_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/commands.h"
#include "cli/zstd_file.h"
#include "wire/tar.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

json::object Settings(std::string_view text) {
  return json::parse(text).as_object();
}

TEST(ImportRequest, AnArchiveGrantsItselfNothing) {
  const json::object greedy = Settings(R"({"format": 1, "name": "n", "image": "i@sha256:1", "nesting": true,
      "ports": [3000, 99999, "x"], "vcpus": 32, "timeout": 99999999, "persistent": false, "user": "root",
      "env": {"A": "1"}, "networkPolicy": {"mode": "allow-all"}, "mounts": {"/x": {"drive": "d"}},
      "isolation": {"engine": "namespaces", "minClass": 1}, "snapshotExpiration": 0, "keepLastSnapshots": {"count": 9},
      "tags": {"team": "red", "sandbar.disposable": "1", "sandbar:min-isolation": "1", "sandbar:new": "1"}})");
  ImportRequest request = RequestFor(greedy, {});
  EXPECT_EQ(request.body,
            Settings(R"({"projectId": "prj_sandbar", "name": "n", "image": "i", "persistent": true, "timeout": 3600000,
      "networkPolicy": {"mode": "deny-all"}, "tags": {"team": "red"}, "ports": [], "isolation": {"minClass": 1}})"));
  EXPECT_THAT(request.not_taken,
              UnorderedElementsAre("the tag \"sandbar.disposable\"", "the tag \"sandbar:new\"",
                                   "a timeout of 99999 s (--timeout)", "published ports 3000 (--publish)",
                                   "snapshotExpiration", "keepLastSnapshots", "containers inside (--nesting)"));
}

TEST(ImportRequest, FlagsGrant) {
  ImportCommand command;
  command.name = "other";
  command.ports = {80};
  command.vcpus = 4;
  command.timeout_ms = 7'200'000;
  command.isolation.nesting = true;
  command.isolation.min_class = 2;
  ImportRequest request = RequestFor(
      Settings(R"({"name": "n", "image": "i", "nesting": true, "ports": [3000], "vcpus": 8, "timeout": 9999999})"),
      command);
  EXPECT_EQ(request.body, Settings(R"({"projectId": "prj_sandbar", "name": "other", "image": "i", "persistent": true,
      "timeout": 7200000, "networkPolicy": {"mode": "deny-all"}, "ports": [80], "resources": {"vcpus": 4},
      "isolation": {"minClass": 2}, "nesting": true})"));
  EXPECT_THAT(request.not_taken, ElementsAre());
}

TEST(ImportRequest, ADemandedClassIsKept) {
  auto demanded = [](std::string_view settings) {
    return json::serialize(RequestFor(Settings(settings), {}).body["isolation"]);
  };
  EXPECT_EQ(demanded(R"({"isolation": {"engine": "gvisor"}})"), R"({"minClass":2})");
  EXPECT_EQ(demanded(R"({"isolation": {"engine": "microvm", "minClass": 2}})"), R"({"minClass":3})");
  EXPECT_EQ(demanded(R"({"tags": {"sandbar:min-isolation": "2"}})"), R"({"minClass":2})");
  EXPECT_EQ(demanded(R"({"isolation": {"engine": "namespaces"}})"), "null");
  EXPECT_EQ(demanded(R"({"isolation": {"minClass": 99}})"), R"({"minClass":3})");
}

// The header with its checksum made right again.
std::string Mended(std::string block) {
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  std::snprintf(block.data() + 148, 7, "%06o", sum);
  return block;
}

class Archive : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sandbar-archive-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    fs::create_directory(dir_ / "out");
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string Tar(const std::string& name, std::string_view text) {
    wire::TarEntry entry;
    entry.name = name;
    entry.size = text.size();
    return wire::TarHeader(entry) + std::string(text) + wire::TarPadding(text.size());
  }
  std::string Head(const std::string& name, uint64_t size) {
    wire::TarEntry entry;
    entry.name = name;
    entry.size = size;
    return wire::TarHeader(entry);
  }
  // Repeats the last piece, so that an archive can be large unpacked and small as a file.
  Result<json::object> Read(std::string_view bytes, std::string_view repeated = "", size_t times = 0,
                            std::optional<uint64_t> max_size = std::nullopt) {
    const std::string path = dir_ / "a.tar.zst";
    Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    ZstdWriter out(std::move(file));
    EXPECT_TRUE(out.Write(bytes).has_value());
    for (size_t i = 0; i < times; ++i) EXPECT_TRUE(out.Write(repeated).has_value());
    EXPECT_TRUE(out.Finish().has_value());
    return ReadArchive(path, dir_ / "out", max_size);
  }
  uint64_t Written() {
    uint64_t total = 0;
    for (const auto& entry : fs::directory_iterator(dir_ / "out")) total += entry.file_size();
    return total;
  }
  const std::string settings_ = R"({"format": 1, "name": "n"})";
  fs::path dir_;
};

TEST_F(Archive, AWholeOne) {
  auto read = Read(Tar("sandbar.json", settings_) + Tar("deleted", "") + Tar("files.tar", "abc") + wire::TarEnd());
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(Text(*read, "name"), "n");
  EXPECT_EQ(Written(), settings_.size() + 3);
}

TEST_F(Archive, ABombIsRefusedBeforeItIsWritten) {
  const std::string zeros(1 << 20, '\0');
  const uint64_t size = 3ULL << 30;
  // 3 GiB of zeros in some 300 kB: only the head of it is needed for the verdict.
  const std::string head = Tar("sandbar.json", settings_) + Tar("deleted", "") + Head("files.tar", size);
  auto bomb = Read(head, zeros, 64);
  ASSERT_FALSE(bomb.has_value());
  EXPECT_EQ(bomb.error().code, Code::kTooLarge);
  EXPECT_THAT(bomb.error().message, HasSubstr("nothing was unpacked"));
  EXPECT_THAT(bomb.error().message, HasSubstr("--max-size 3221225472"));
  EXPECT_EQ(Written(), settings_.size());
}

TEST_F(Archive, TheImporterMaySayHowLarge) {
  const std::string head = Tar("sandbar.json", settings_) + Tar("deleted", "") + Head("files.tar", 2 << 20);
  EXPECT_THAT(Read(head, std::string(1 << 20, 'x'), 2, 1 << 20).error().message, HasSubstr("--max-size"));
  fs::remove_all(dir_ / "out");
  fs::create_directory(dir_ / "out");
  const std::string end = wire::TarEnd();
  EXPECT_TRUE(Read(head + std::string(2 << 20, 'x') + end, "", 0, 2 << 20).has_value());
}

TEST_F(Archive, HeadersAndWhatFollowsTheEndAreBoundedToo) {
  // An endless run of global extension records, which say nothing.
  const std::string record = "13 comment=x\n";
  std::string block = Head("g", record.size());
  block[156] = 'g';
  block = Mended(std::move(block)) + record + wire::TarPadding(record.size());
  auto headers = Read("", block, 4096);
  ASSERT_FALSE(headers.has_value());
  EXPECT_THAT(headers.error().message, HasSubstr("more than its three files"));
  auto tail = Read(Tar("sandbar.json", settings_) + Tar("deleted", "") + Tar("files.tar", "") + wire::TarEnd(),
                   std::string(1 << 20, '\0'), 4096);
  ASSERT_FALSE(tail.has_value());
  EXPECT_THAT(tail.error().message, HasSubstr("more than its three files"));
}

TEST_F(Archive, OtherNamesDuplicatesAndOtherKindsAreRefused) {
  const std::string good = Tar("sandbar.json", settings_) + Tar("deleted", "") + Tar("files.tar", "");
  for (const std::string name : {"other", "../sandbar.json", "/etc/passwd", "sub/sandbar.json", "files.tar/x"}) {
    auto read = Read(Tar(name, "x") + good + wire::TarEnd());
    EXPECT_FALSE(read.has_value()) << name;
    EXPECT_EQ(Written(), 0U) << name;
  }
  EXPECT_THAT(Read(Tar("files.tar", "a") + good + wire::TarEnd()).error().message, HasSubstr("files.tar twice"));
  fs::remove_all(dir_ / "out");
  fs::create_directory(dir_ / "out");
  EXPECT_THAT(Read(Tar("\x1b[2J", "x") + wire::TarEnd()).error().message, HasSubstr(R"("\x1b[2J")"));
  // A link, device or FIFO in the place of a file; a directory; a sparse file.
  for (const char type : {'1', '2', '3', '4', '5', '6', 'S', 'D', 'M', 'V'}) {
    std::string block = Head("sandbar.json", 0);
    block[156] = type;
    block = Mended(std::move(block));
    EXPECT_FALSE(Read(block + wire::TarEnd()).has_value()) << type;
    EXPECT_EQ(Written(), 0U) << type;
  }
}

TEST_F(Archive, SizesThatLieAreRefused) {
  struct Case {
    std::string field;
    const char* what;
  };
  for (const Case& c :
       {Case{std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12), "negative"},
        Case{std::string("\x80\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12), "base-256 overflow"},
        Case{"777777777777", "64 GiB in octal"}, Case{"-0000000001", "a sign"}, Case{"0x000000010", "hexadecimal"}}) {
    std::string block = Head("files.tar", 0);
    std::copy(c.field.begin(), c.field.end(), block.begin() + 124);
    block = Mended(std::move(block));
    EXPECT_FALSE(Read(block + wire::TarEnd()).has_value()) << c.what;
    EXPECT_EQ(Written(), 0U) << c.what;
  }
  // A pax record that says another size than the header.
  for (const std::string& pax : {std::string("28 size=99999999999999999999"), std::string("16 size=-1\nxxxxx")}) {
    std::string block = Head("p", pax.size());
    block[156] = 'x';
    block = Mended(std::move(block));
    EXPECT_FALSE(Read(block + pax + wire::TarPadding(pax.size()) + Tar("files.tar", "x") + wire::TarEnd()).has_value());
    EXPECT_EQ(Written(), 0U) << pax;
  }
}

TEST_F(Archive, WhatIsCutShortOrIncompleteIsRefused) {
  const std::string whole = Tar("sandbar.json", settings_) + Tar("deleted", "") + Tar("files.tar", "abc");
  EXPECT_FALSE(Read(whole).has_value());
  fs::remove_all(dir_ / "out");
  fs::create_directory(dir_ / "out");
  EXPECT_FALSE(Read(Tar("sandbar.json", settings_) + wire::TarEnd()).has_value());
  EXPECT_FALSE(ReadArchive("/dev/zero", dir_ / "out", std::nullopt).has_value());
  EXPECT_FALSE(ReadArchive(dir_, dir_ / "out", std::nullopt).has_value());
}

}  // namespace
}  // namespace sandbar::cli
