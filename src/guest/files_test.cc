#include <gmock/gmock.h>
#include <sys/sysmacros.h>
#include <zlib.h>

#include "guest/gunzip.h"
#include "support/guest/test_machine.h"
#include "support/wire/noise.h"
#include "wire/tar.h"

namespace sandbar::guest {
namespace {

using protocol::FileErrorKind;
using ::testing::HasSubstr;

constexpr uint32_t kUser = 12345;

std::string Gzip(std::string_view plain) {
  z_stream z{};
  EXPECT_EQ(::deflateInit2(&z, plain.size() > (1 << 20) ? 0 : 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(::deflateBound(&z, plain.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  ::deflateEnd(&z);
  return out;
}

std::string File(const std::string& name, std::string_view bytes, uint32_t mode = 0644) {
  return wire::TarHeader({name, false, mode, bytes.size()}) + std::string(bytes) + wire::TarPadding(bytes.size());
}

struct FileResult {
  std::string bytes;
  std::optional<protocol::FileError> error;
};

class Files : public ::testing::Test {
 protected:
  // Until End or FileError of the stream, giving credit back as it reads.
  FileResult Collect(uint32_t stream) {
    FileResult r;
    while (auto frame = client_.Receive()) {
      if (auto* d = std::get_if<protocol::Data>(&*frame)) {
        EXPECT_EQ(d->stream, stream);
        r.bytes += d->bytes;
        client_.Send(protocol::Credit{stream, static_cast<uint32_t>(d->bytes.size())});
      }
      if (std::holds_alternative<protocol::End>(*frame)) return r;
      if (auto* e = std::get_if<protocol::FileError>(&*frame)) {
        r.error = *e;
        return r;
      }
    }
    ADD_FAILURE() << "connection ended";
    return r;
  }
  FileResult Read(const std::string& path, uint32_t uid = kUser, const std::string& cwd = "/") {
    uint32_t id = next_++;
    client_.Send(protocol::ReadFile{id, path, cwd, uid, uid, ""});
    return Collect(id);
  }
  FileErrorKind ReadError(const std::string& path, uint32_t uid = kUser) {
    auto r = Read(path, uid);
    EXPECT_TRUE(r.error) << path;
    EXPECT_EQ(r.bytes, "");
    return r.error ? r.error->kind : FileErrorKind::kOther;
  }
  // Sends an archive, keeping to the credit.
  std::optional<protocol::FileError> Write(const std::string& archive, const std::string& cwd, uint32_t uid = kUser,
                                           bool gzip = true) {
    uint32_t id = next_++;
    client_.Send(protocol::WriteTar{id, cwd, uid, uid, "", gzip});
    uint64_t credit = protocol::kStreamWindow;
    size_t at = 0;
    bool ended = false;
    for (;;) {
      while (at < archive.size() && credit > 0) {
        size_t n = std::min<uint64_t>({archive.size() - at, credit, protocol::kMaxData});
        client_.Send(protocol::Data{id, archive.substr(at, n)});
        at += n;
        credit -= n;
      }
      if (at == archive.size() && !ended) {
        client_.Send(protocol::End{id});
        ended = true;
      }
      auto frame = client_.Receive();
      if (!frame) {
        ADD_FAILURE() << "connection ended";
        return std::nullopt;
      }
      if (auto* c = std::get_if<protocol::Credit>(&*frame)) credit += c->bytes;
      if (auto* e = std::get_if<protocol::FileError>(&*frame)) return *e;
      if (std::holds_alternative<protocol::End>(*frame)) return std::nullopt;
    }
  }
  std::optional<FileErrorKind> MakeDir(const std::string& path, bool recursive = false, uint32_t uid = kUser) {
    client_.Send(protocol::MakeDir{{next_++, path, machine_.dir(), uid, uid, ""}, recursive, {}});
    auto frame = client_.Receive();
    if (frame && std::holds_alternative<protocol::End>(*frame)) return std::nullopt;
    if (auto* e = frame ? std::get_if<protocol::FileError>(&*frame) : nullptr) return e->kind;
    ADD_FAILURE() << "no answer";
    return FileErrorKind::kOther;
  }
  std::string dir() const { return machine_.dir(); }
  static mode_t ModeOf(const std::string& path) {
    struct stat st{};
    EXPECT_EQ(::lstat(path.c_str(), &st), 0) << path;
    return st.st_mode & 07777;
  }
  static uid_t OwnerOf(const std::string& path) {
    struct stat st{};
    EXPECT_EQ(::lstat(path.c_str(), &st), 0) << path;
    return st.st_uid;
  }

  TestMachine machine_{MachineOptions{.worker_stall = std::chrono::milliseconds(2000)}};
  TestClient client_{machine_};
  uint32_t next_ = 1;
};

TEST_F(Files, ReadsRegularFiles) {
  WriteWhole(dir() + "/hello", "hello\0world");
  WriteWhole(dir() + "/empty", "");
  EXPECT_EQ(Read(dir() + "/hello").bytes, "hello");
  EXPECT_EQ(Read("hello", kUser, dir()).bytes, "hello");
  auto empty = Read(dir() + "/empty");
  EXPECT_FALSE(empty.error);
  EXPECT_EQ(empty.bytes, "");
}

TEST_F(Files, ReadsFiftyMegabytesByteForByte) {
  std::string bytes = Noise(50 << 20);
  WriteWhole(dir() + "/big", bytes);
  auto r = Read(dir() + "/big");
  EXPECT_FALSE(r.error);
  EXPECT_TRUE(r.bytes == bytes);
}

TEST_F(Files, ReadWaitsForCredit) {
  WriteWhole(dir() + "/big", std::string(4 << 20, 'x'));
  client_.Send(protocol::ReadFile{next_, dir() + "/big", "/", kUser, kUser, ""});
  uint64_t got = 0;
  while (auto frame = client_.Receive(300)) got += std::get<protocol::Data>(*frame).bytes.size();
  EXPECT_LE(got, protocol::kStreamWindow);
  EXPECT_GT(got, protocol::kStreamWindow - (128 << 10));
  // Longer than the stall limit without credit is the daemon's business, not an error.
  EXPECT_FALSE(client_.Receive(3000));
  client_.Send(protocol::Credit{next_, static_cast<uint32_t>(got)});
  EXPECT_GT(client_.Expect<protocol::Data>().bytes.size(), 0u);
}

TEST_F(Files, WhatIsNotARegularFileIsRefusedAtOnce) {
  ::mkfifo((dir() + "/fifo").c_str(), 0666);
  ::mknod((dir() + "/device").c_str(), S_IFCHR | 0666, makedev(1, 5));
  ASSERT_EQ(::symlink((dir() + "/fifo").c_str(), (dir() + "/link").c_str()), 0);
  EXPECT_EQ(ReadError(dir() + "/fifo"), FileErrorKind::kNotRegular);
  EXPECT_EQ(ReadError(dir() + "/link"), FileErrorKind::kNotRegular);
  EXPECT_EQ(ReadError(dir() + "/device"), FileErrorKind::kNotRegular);
  EXPECT_EQ(ReadError(dir() + "/agent.sock"), FileErrorKind::kNotRegular);
  EXPECT_EQ(ReadError(dir()), FileErrorKind::kIsDirectory);
  EXPECT_EQ(ReadError("/dev/zero"), FileErrorKind::kNotRegular);
  EXPECT_EQ(ReadError("/proc/self/fd/3"), FileErrorKind::kNotRegular);  // the worker's own pipe
}

TEST_F(Files, ErrorsAreTyped) {
  WriteWhole(dir() + "/secret", "s");
  ::chmod((dir() + "/secret").c_str(), 0600);
  EXPECT_EQ(ReadError(dir() + "/none"), FileErrorKind::kNotFound);
  EXPECT_EQ(ReadError(dir() + "/secret/x"), FileErrorKind::kNotDirectory);
  EXPECT_EQ(ReadError(dir() + "/secret"), FileErrorKind::kDenied);
  EXPECT_EQ(ReadError(""), FileErrorKind::kNotFound);
  EXPECT_EQ(Read(dir() + "/secret", 0).bytes, "s");
}

TEST_F(Files, ProcFilesAreReadToTheirEndOrTheCap) {
  EXPECT_THAT(Read("/proc/self/status").bytes, HasSubstr("Uid:\t12345"));
  // Nothing of the agent: neither its environment nor its descriptors.
  EXPECT_EQ(ReadError("/proc/1/environ"), FileErrorKind::kDenied);
  EXPECT_EQ(ReadError("/proc/self/mem"), FileErrorKind::kDenied);
  auto kmsg = Read("/proc/kmsg");
  EXPECT_TRUE(kmsg.error);
}

TEST_F(Files, FileWithoutASizeThatNeverEndsHitsTheCap) {
  // A file of size 0 that grows while it is read: the writer holds it open through the guest.
  WriteWhole(dir() + "/grows", "");
  ::chmod((dir() + "/grows").c_str(), 0666);
  WriteWhole(dir() + "/sized", "1234");
  client_.Send(TestClient::Command(
      "w", {"sh", "-c", "while :; do cat /dev/zero | head -c 60000000; sleep 1; done > " + dir() + "/grows"}));
  client_.Expect<protocol::ExecStarted>();
  ASSERT_TRUE(Eventually([&] { return std::filesystem::file_size(dir() + "/grows") > (20 << 20); }));
  // Sized by now: it ends where it ended when it was opened.
  auto r = Read(dir() + "/grows");
  EXPECT_FALSE(r.error);
  EXPECT_GT(r.bytes.size(), 20u << 20);
}

TEST_F(Files, AbortedReadEndsOnceAndLeavesNoWorker) {
  WriteWhole(dir() + "/big", std::string(8 << 20, 'x'));
  client_.Send(protocol::ReadFile{1, dir() + "/big", "/", kUser, kUser, ""});
  client_.Expect<protocol::Data>();
  client_.Send(protocol::Abort{1});
  int ends = 0;
  while (auto frame = client_.Receive(500)) ends += std::holds_alternative<protocol::FileError>(*frame) ? 1 : 0;
  EXPECT_EQ(ends, 1);
  client_.Send(protocol::Abort{1});  // crossed on the way: ignored
  EXPECT_TRUE(Eventually([&] { return client_.Shell("! pgrep sandbar-file").exit.code == 0; }));
}

TEST_F(Files, WorkerKilledByTheGuestIsAnError) {
  WriteWhole(dir() + "/big", std::string(8 << 20, 'x'));
  client_.Send(protocol::ReadFile{1, dir() + "/big", "/", kUser, kUser, ""});
  for (uint64_t got = 0; got < protocol::kStreamWindow - (64 << 10);)
    got += client_.Expect<protocol::Data>().bytes.size();
  auto e = TestClient::Command("k", {"pkill", "-KILL", "sandbar-file"});
  e.uid = e.gid = kUser;
  EXPECT_EQ(client_.RunExec(e).exit.code, 0);
  client_.Send(protocol::Credit{1, 512 << 10});
  for (;;) {
    auto frame = client_.Receive();
    ASSERT_TRUE(frame);
    if (auto* error = std::get_if<protocol::FileError>(&*frame)) {
      EXPECT_EQ(error->kind, FileErrorKind::kOther);
      break;
    }
  }
}

TEST_F(Files, WorkerThatHangsIsKilledAtTheDeadline) {
  WriteWhole(dir() + "/big", std::string(8 << 20, 'x'));
  client_.Send(protocol::ReadFile{1, dir() + "/big", "/", kUser, kUser, ""});
  uint64_t got = 0;
  while (auto frame = client_.Receive(200)) got += std::get<protocol::Data>(*frame).bytes.size();
  auto e = TestClient::Command("k", {"pkill", "-STOP", "sandbar-file"});
  e.uid = e.gid = kUser;
  client_.RunExec(e);
  client_.Send(protocol::Credit{1, static_cast<uint32_t>(got)});
  for (;;) {
    auto frame = client_.Receive();
    ASSERT_TRUE(frame);
    if (auto* error = std::get_if<protocol::FileError>(&*frame)) {
      EXPECT_EQ(error->kind, FileErrorKind::kTimeout);
      break;
    }
  }
  EXPECT_TRUE(Eventually([&] { return client_.Shell("! pgrep sandbar-file").exit.code == 0; }));
}

TEST_F(Files, ExtractsWithModesAndParentsAsTheUser) {
  std::string long_name(150, 'n');
  auto tar = File("a/b/c.txt", "text") + File("run.sh", "#!/bin/sh\n", 0755) + File("open", "o", 0666) +
             File("setuid", "s", 0777) + File("ünïcode/" + long_name, "u") + File("none", "") +
             wire::TarHeader({"d/e", true, 0700, 0}) + wire::TarEnd();
  EXPECT_EQ(Write(Gzip(tar), dir()), std::nullopt);
  EXPECT_EQ(ReadWhole(dir() + "/a/b/c.txt"), "text");
  EXPECT_EQ(ModeOf(dir() + "/a/b/c.txt"), 0644u);
  EXPECT_EQ(ModeOf(dir() + "/a/b"), 0755u);
  EXPECT_EQ(ModeOf(dir() + "/run.sh"), 0755u);
  EXPECT_EQ(ModeOf(dir() + "/open"), 0666u);
  EXPECT_EQ(ModeOf(dir() + "/d/e"), 0700u);
  EXPECT_EQ(ReadWhole(dir() + "/ünïcode/" + long_name), "u");
  EXPECT_EQ(ReadWhole(dir() + "/none"), "");
  EXPECT_EQ(OwnerOf(dir() + "/a"), kUser);
  EXPECT_EQ(OwnerOf(dir() + "/a/b/c.txt"), kUser);
}

TEST_F(Files, ExtractsLinksTimesAndDirectoriesThatMayNotBeWritten) {
  auto entry = [](const std::string& name, uint32_t mode) {
    wire::TarEntry e{name};
    e.mode = mode;
    e.mtime = 1'000'000'000;
    e.mtime_given = true;
    return e;
  };
  auto link = [&](const std::string& name, const std::string& target) {
    wire::TarEntry e = entry(name, 0777);
    e.kind = wire::TarEntry::Kind::kSymlink;
    e.target = target;
    return wire::TarHeader(e);
  };
  wire::TarEntry closed = entry("closed", 0555);
  closed.directory = true;
  wire::TarEntry inside = entry("closed/file", 0400);
  inside.size = 1;
  WriteWhole(dir() + "/was-file", "old");
  ASSERT_EQ(::chown((dir() + "/was-file").c_str(), kUser, kUser), 0);
  auto tar = wire::TarHeader(closed) + wire::TarHeader(inside) + "x" + wire::TarPadding(1) +
             link("rel", "closed/file") + link("abs", "/etc/passwd") + link("new/dir/dangling", "no/where") +
             link("was-file", "rel") + wire::TarEnd();
  EXPECT_EQ(Write(Gzip(tar), dir()), std::nullopt);
  EXPECT_EQ(ReadWhole(dir() + "/rel"), "x");
  EXPECT_EQ(ModeOf(dir() + "/closed"), 0555u);
  EXPECT_EQ(ModeOf(dir() + "/closed/file"), 0400u);
  EXPECT_EQ(std::filesystem::read_symlink(dir() + "/abs"), "/etc/passwd");
  EXPECT_EQ(std::filesystem::read_symlink(dir() + "/new/dir/dangling"), "no/where");
  EXPECT_EQ(std::filesystem::read_symlink(dir() + "/was-file"), "rel");
  for (const char* name : {"/closed", "/closed/file", "/abs"}) {
    struct stat st{};
    ASSERT_EQ(::lstat((dir() + name).c_str(), &st), 0);
    EXPECT_EQ(st.st_mtim.tv_sec, 1'000'000'000) << name;
  }
  // A second time, over what is there now.
  EXPECT_EQ(Write(Gzip(link("abs", "/etc/group") + wire::TarEnd()), dir()), std::nullopt);
  EXPECT_EQ(std::filesystem::read_symlink(dir() + "/abs"), "/etc/group");
}

TEST_F(Files, OverwritesExistingFilesAndRunningPrograms) {
  WriteWhole(dir() + "/old", "a much longer text than the new one");
  ::chmod((dir() + "/old").c_str(), 0666);
  std::filesystem::copy_file("/bin/sleep", dir() + "/prog");
  ASSERT_EQ(::chown((dir() + "/prog").c_str(), kUser, kUser), 0);
  client_.Send(TestClient::Command("p", {dir() + "/prog", "1000"}));
  client_.Expect<protocol::ExecStarted>();
  EXPECT_EQ(Write(Gzip(File("old", "new") + File("prog", "changed", 0755) + wire::TarEnd()), dir()), std::nullopt);
  EXPECT_EQ(ReadWhole(dir() + "/old"), "new");
  EXPECT_EQ(ReadWhole(dir() + "/prog"), "changed");
}

TEST_F(Files, WritesFiftyMegabytesByteForByte) {
  std::string bytes = Noise(50 << 20);
  EXPECT_EQ(Write(Gzip(File("big", bytes) + wire::TarEnd()), dir()), std::nullopt);
  EXPECT_TRUE(ReadWhole(dir() + "/big") == bytes);
}

TEST_F(Files, PlainTarWorksToo) {
  EXPECT_EQ(Write(File("plain", "x") + wire::TarEnd(), dir() + "/new/dir", kUser, false), std::nullopt);
  EXPECT_EQ(ReadWhole(dir() + "/new/dir/plain"), "x");
}

TEST_F(Files, WhatATarMayNotContainIsNamed) {
  auto link = [](char type) {
    std::string h = wire::TarHeader({"bad-entry", false, 0644, 0});
    h[156] = type;
    // Put the checksum right again.
    std::fill(h.begin() + 148, h.begin() + 156, ' ');
    unsigned sum = 0;
    for (char c : h) sum += static_cast<unsigned char>(c);
    std::snprintf(h.data() + 148, 8, "%06o", sum);
    return h;
  };
  for (char type : {'1', '2', '3', '4', '6', 'S', 'V'}) {
    auto error = Write(Gzip(link(type) + wire::TarEnd()), dir());
    ASSERT_TRUE(error) << type;
    EXPECT_EQ(error->kind, FileErrorKind::kBadArchive);
    EXPECT_THAT(error->message, HasSubstr("bad-entry"));
  }
  for (const char* name : {"../up", "a/../../up", "/etc/absolute", "a/.."}) {
    auto error = Write(Gzip(File(name, "x") + wire::TarEnd()), dir() + "/sub");
    ASSERT_TRUE(error) << name;
    EXPECT_EQ(error->kind, FileErrorKind::kBadArchive);
  }
  EXPECT_FALSE(std::filesystem::exists(dir() + "/up"));
}

TEST_F(Files, BrokenArchivesAreErrors) {
  auto whole = Gzip(File("f", Noise(100000)) + wire::TarEnd());
  EXPECT_EQ(Write(whole.substr(0, whole.size() / 2), dir())->kind, FileErrorKind::kBadArchive);
  EXPECT_EQ(Write(whole.substr(0, whole.size() - 4), dir())->kind, FileErrorKind::kBadArchive);
  EXPECT_EQ(Write("", dir())->kind, FileErrorKind::kBadArchive);
  EXPECT_EQ(Write("no gzip at all", dir())->kind, FileErrorKind::kBadArchive);
  EXPECT_EQ(Write(Gzip(File("f", "x")), dir())->kind, FileErrorKind::kBadArchive);  // no end mark
  auto flipped = whole;
  flipped[flipped.size() - 6] ^= 1;  // the checksum
  EXPECT_EQ(Write(flipped, dir())->kind, FileErrorKind::kBadArchive);
}

TEST_F(Files, WriteErrorsAreTypedAndEarly) {
  ::mkfifo((dir() + "/fifo").c_str(), 0666);
  ::mkdir((dir() + "/closed").c_str(), 0700);
  ::mkdir((dir() + "/isdir").c_str(), 0777);
  WriteWhole(dir() + "/file", "");
  auto big = Noise(8 << 20);
  EXPECT_EQ(Write(Gzip(File("fifo", big) + wire::TarEnd()), dir())->kind, FileErrorKind::kNotRegular);
  EXPECT_EQ(Write(Gzip(File("closed/x", big) + wire::TarEnd()), dir())->kind, FileErrorKind::kDenied);
  EXPECT_EQ(Write(Gzip(File("isdir", big) + wire::TarEnd()), dir())->kind, FileErrorKind::kIsDirectory);
  EXPECT_EQ(Write(Gzip(File("file/x", big) + wire::TarEnd()), dir())->kind, FileErrorKind::kNotDirectory);
  EXPECT_EQ(Write(Gzip(File("x", "") + wire::TarEnd()), "/proc/nowhere")->kind, FileErrorKind::kNotFound);
}

TEST_F(Files, MakesDirectories) {
  EXPECT_EQ(MakeDir("one"), std::nullopt);
  EXPECT_EQ(ModeOf(dir() + "/one"), 0755u);
  EXPECT_EQ(OwnerOf(dir() + "/one"), kUser);
  EXPECT_EQ(MakeDir("one"), FileErrorKind::kExists);
  EXPECT_EQ(MakeDir("two/three"), FileErrorKind::kNotFound);
  EXPECT_EQ(MakeDir("two/three/four", true), std::nullopt);
  EXPECT_EQ(MakeDir("two/three/four", true), std::nullopt);  // like mkdir -p
  EXPECT_EQ(MakeDir(dir() + "/absolute/x", true), std::nullopt);
  EXPECT_TRUE(std::filesystem::is_directory(dir() + "/absolute/x"));
  WriteWhole(dir() + "/file", "");
  EXPECT_EQ(MakeDir("file"), FileErrorKind::kExists);
  EXPECT_EQ(MakeDir("file", true), FileErrorKind::kExists);
  EXPECT_EQ(MakeDir("file/x"), FileErrorKind::kNotDirectory);
  EXPECT_EQ(MakeDir("/root-only"), FileErrorKind::kDenied);
}

TEST_F(Files, DisconnectEndsTheWorkers) {
  WriteWhole(dir() + "/big", std::string(8 << 20, 'x'));
  client_.Send(protocol::ReadFile{1, dir() + "/big", "/", kUser, kUser, ""});
  client_.Expect<protocol::Data>();
  TestClient fresh(machine_);
  EXPECT_TRUE(Eventually([&] { return fresh.Shell("! pgrep sandbar-file").exit.code == 0; }));
}

TEST_F(Files, ManyAtOnce) {
  WriteWhole(dir() + "/f", "abc");
  constexpr uint32_t kMany = 32;
  for (uint32_t i = 1; i <= kMany; ++i) client_.Send(protocol::ReadFile{i, dir() + "/f", "/", kUser, kUser, ""});
  std::map<uint32_t, std::string> got;
  for (uint32_t ends = 0; ends < kMany;) {
    auto frame = client_.Receive();
    ASSERT_TRUE(frame);
    if (auto* d = std::get_if<protocol::Data>(&*frame)) got[d->stream] += d->bytes;
    if (std::holds_alternative<protocol::End>(*frame)) ++ends;
  }
  EXPECT_EQ(got.size(), kMany);
  for (auto& [id, text] : got) EXPECT_EQ(text, "abc");
}

TEST(GunzipStream, MembersPaddingAndAnySplit) {
  std::string two = Gzip("hello ") + Gzip("world") + std::string(100, '\0');
  for (size_t step : {1, 2, 7, 1000}) {
    Gunzip gz;
    std::string out;
    for (size_t at = 0; at < two.size(); at += step) {
      auto fed = gz.Feed(std::string_view(two).substr(at, step), [&](std::string_view plain) {
        out += plain;
        return Result<>{};
      });
      ASSERT_TRUE(fed) << fed.error().message;
    }
    EXPECT_TRUE(gz.Finish());
    EXPECT_EQ(out, "hello world");
  }
}

}  // namespace
}  // namespace sandbar::guest
