#include "client/tar_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace sandbar::client {
namespace {

namespace fs = std::filesystem;

class TarStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sandbar-tar-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string File(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return (dir_ / name).string();
  }
  // What GNU tar makes of the stream: an independent reader.
  std::string Unpack(std::vector<TarItem> items) {
    TarStream tar(std::move(items));
    std::ofstream out(dir_ / "t.tgz", std::ios::binary);
    for (;;) {
      auto piece = tar.Next();
      if (!piece) return piece.error().message;
      if (piece->empty()) break;
      out << *piece;
    }
    out.close();
    fs::create_directories(dir_ / "out");
    std::string command = "tar -xzf " + (dir_ / "t.tgz").string() + " -C " + (dir_ / "out").string() + " 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    std::string said;
    std::array<char, 256> buffer{};
    while (::fgets(buffer.data(), buffer.size(), pipe) != nullptr) said += buffer.data();
    return ::pclose(pipe) == 0 ? "" : "tar failed: " + said;
  }
  std::string Read(const std::string& name) {
    std::ifstream in(dir_ / "out" / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  fs::path dir_;
};

TEST_F(TarStreamTest, GnuTarReadsWhatWeWrite) {
  std::string big(700'001, 'x');
  for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 31 + i / 977);
  std::string long_name = "d/" + std::string(90, 'a') + "/" + std::string(90, 'b');
  std::string said = Unpack({{"empty", File("empty", "")},
                             {"d/big", File("big", big)},
                             {long_name, File("long", "long")},
                             {"caf\xC3\xA9", File("utf8", "utf8")},
                             {"exact", File("exact", std::string(512, 'e'))},
                             {"given/a", "", "from memory"},
                             {"given/b", "", std::string(512, 'g')}});
  ASSERT_EQ(said, "");
  EXPECT_EQ(Read("empty"), "");
  EXPECT_EQ(Read("d/big"), big);
  EXPECT_EQ(Read(long_name), "long");
  EXPECT_EQ(Read("caf\xC3\xA9"), "utf8");
  EXPECT_EQ(Read("exact"), std::string(512, 'e'));
  EXPECT_EQ(Read("given/a"), "from memory");
  EXPECT_EQ(Read("given/b"), std::string(512, 'g'));
}

TEST_F(TarStreamTest, KeepsTheMode) {
  std::string path = File("tool", "#!/bin/sh\n");
  ASSERT_EQ(::chmod(path.c_str(), 0750), 0);
  ASSERT_EQ(Unpack({{"tool", path}}), "");
  struct stat st{};
  ASSERT_EQ(::stat((dir_ / "out/tool").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0750u);
}

TEST_F(TarStreamTest, LinksDirectoriesAndTimesArrive) {
  fs::create_directories(dir_ / "in/empty");
  fs::permissions(dir_ / "in/empty", fs::perms(0711));
  const std::string path = (dir_ / "in").string();
  ASSERT_EQ(::symlink("/no/where", (dir_ / "in/abs").c_str()), 0);
  ASSERT_EQ(::symlink(std::string(250, 'l').c_str(), (dir_ / "in/long").c_str()), 0);
  const std::string file = File("dated", "x");
  const timespec times[2] = {{5, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  auto item = [](const std::string& name, const std::string& from, TarItem::Kind kind) {
    TarItem out{name, from};
    out.kind = kind;
    out.keep_time = true;
    return out;
  };
  ASSERT_EQ(Unpack({item("empty", path + "/empty", TarItem::Kind::kDirectory),
                    item("abs", path + "/abs", TarItem::Kind::kLink),
                    item("long", path + "/long", TarItem::Kind::kLink), item("dated", file, TarItem::Kind::kFile)}),
            "");
  EXPECT_TRUE(fs::is_directory(dir_ / "out/empty"));
  EXPECT_EQ(fs::status(dir_ / "out/empty").permissions(), fs::perms(0711));
  EXPECT_EQ(fs::read_symlink(dir_ / "out/abs"), "/no/where");
  EXPECT_EQ(fs::read_symlink(dir_ / "out/long"), std::string(250, 'l'));
  struct stat st{};
  ASSERT_EQ(::stat((dir_ / "out/dated").c_str(), &st), 0);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'000'000'000);
  EXPECT_NE(Unpack({item("x", file, TarItem::Kind::kLink)}).find("became something else"), std::string::npos);
}

TEST_F(TarStreamTest, RefusesWhatIsNoFile) {
  ASSERT_EQ(::mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  EXPECT_NE(Unpack({{"fifo", (dir_ / "fifo").string()}}).find("not a regular file"), std::string::npos);
  EXPECT_NE(Unpack({{"gone", (dir_ / "gone").string()}}).find("No such file"), std::string::npos);
}

TEST(TarHeader, PaxRecordCountsItself) {
  std::string name(120, 'n');
  std::string header = TarHeader(name, 5, 0644);
  ASSERT_EQ(header.size(), 3 * 512u);
  std::string record = "130 path=" + name + "\n";
  EXPECT_EQ(record.size(), 130u);
  EXPECT_EQ(header.substr(512, record.size()), record);
}

}  // namespace
}  // namespace sandbar::client
