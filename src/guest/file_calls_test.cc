// Calls on single files, by frames to a real agent with real workers.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/file_entry.h"
#include "support/guest/test_machine.h"
#include "support/wire/noise.h"

namespace sandbar::guest {
namespace {

using protocol::FileEntry;
using protocol::FileErrorKind;
using protocol::FileType;
using ::testing::ElementsAre;

constexpr uint32_t kUser = 12345;

class FileCalls : public ::testing::Test {
 protected:
  FileCalls() {
    EXPECT_EQ(::mkdir(dir().c_str(), 0777), 0);
    EXPECT_EQ(::chmod(dir().c_str(), 0777), 0);
  }
  template <class Request>
  Request At(const std::string& path, uint32_t uid = kUser) {
    Request request;
    request.stream = next_++;
    request.path = path;
    request.cwd = dir();
    request.uid = request.gid = uid;
    return request;
  }
  // The bytes of the answer; its error is in error_.
  std::string Answer(uint32_t stream) {
    std::string bytes;
    error_.reset();
    while (auto frame = client_.Receive()) {
      if (auto* d = std::get_if<protocol::Data>(&*frame)) {
        bytes += d->bytes;
        client_.Send(protocol::Credit{stream, static_cast<uint32_t>(d->bytes.size())});
      }
      if (std::holds_alternative<protocol::End>(*frame)) return bytes;
      if (auto* e = std::get_if<protocol::FileError>(&*frame)) {
        error_ = e->kind;
        return bytes;
      }
    }
    ADD_FAILURE() << "connection ended";
    return bytes;
  }
  template <class Request>
  std::string Ask(const Request& request) {
    client_.Send(request);
    return Answer(request.stream);
  }
  template <class Request>
  std::vector<FileEntry> Entries(const Request& request) {
    auto entries = protocol::DecodeEntries(Ask(request));
    EXPECT_TRUE(entries);
    return entries ? *entries : std::vector<FileEntry>();
  }
  std::vector<std::string> Names(const std::string& path, const std::string& after = "", uint32_t limit = 100) {
    auto request = At<protocol::ListDir>(path);
    request.after = after;
    request.limit = limit;
    std::vector<std::string> names;
    for (const FileEntry& entry : Entries(request)) names.push_back(entry.name);
    return names;
  }
  FileEntry Stat(const std::string& path, bool follow = true) {
    auto request = At<protocol::StatFile>(path);
    request.follow = follow;
    auto entries = Entries(request);
    return entries.size() == 1 ? entries.front() : FileEntry();
  }
  void Write(protocol::WriteFile request, const std::string& bytes) {
    client_.Send(request);
    if (!bytes.empty()) client_.Send(protocol::Data{request.stream, bytes});
    client_.Send(protocol::End{request.stream});
    Answer(request.stream);
  }
  void UntilNames(size_t count, const std::string& path = ".") {
    for (int i = 0; i < 1000 && Names(path).size() != count; ++i) ::usleep(10'000);
    EXPECT_EQ(Names(path).size(), count);
  }
  std::string dir() const { return machine_.dir() + "/work"; }
  std::string Read(const std::string& name) { return ReadWhole(dir() + "/" + name); }

  TestMachine machine_{MachineOptions{.worker_stall = std::chrono::milliseconds(2000)}};
  TestClient client_{machine_};
  uint32_t next_ = 1;
  std::optional<FileErrorKind> error_;
};

TEST_F(FileCalls, ListsInOrderAndInPages) {
  for (const char* name : {"b", "a", "d", ".hidden", "c"}) WriteWhole(dir() + "/" + name, "x");
  EXPECT_THAT(Names("."), ElementsAre(".hidden", "a", "b", "c", "d"));
  EXPECT_THAT(Names(".", "", 2), ElementsAre(".hidden", "a"));
  EXPECT_THAT(Names(".", "a", 2), ElementsAre("b", "c"));
  EXPECT_THAT(Names(".", "d"), ElementsAre());
  Names("missing");
  EXPECT_EQ(error_, FileErrorKind::kNotFound);
  Names("a");
  EXPECT_EQ(error_, FileErrorKind::kNotDirectory);
  ASSERT_EQ(::mkdir((dir() + "/closed").c_str(), 0700), 0);
  Names("closed");
  EXPECT_EQ(error_, FileErrorKind::kDenied);
}

TEST_F(FileCalls, TellsWhatAFileIs) {
  WriteWhole(dir() + "/f", "12345");
  ASSERT_EQ(::chmod((dir() + "/f").c_str(), 04751), 0);
  ASSERT_EQ(::symlink("f", (dir() + "/link").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", (dir() + "/dangling").c_str()), 0);
  ASSERT_EQ(::mkfifo((dir() + "/pipe").c_str(), 0600), 0);
  FileEntry file = Stat("f");
  EXPECT_EQ(file.name, dir() + "/f");
  EXPECT_EQ(file.type, FileType::kFile);
  EXPECT_EQ(file.size, 5U);
  EXPECT_EQ(file.mode, 04751U);
  EXPECT_EQ(file.links, 1U);
  EXPECT_EQ(Stat("link").name, dir() + "/f");
  FileEntry link = Stat("link", false);
  EXPECT_EQ(link.type, FileType::kSymlink);
  EXPECT_EQ(link.name, dir() + "/link");
  EXPECT_EQ(link.target, "f");
  EXPECT_EQ(Stat("dangling", false).target, "nowhere");
  Stat("dangling");
  EXPECT_EQ(error_, FileErrorKind::kNotFound);
  EXPECT_EQ(Stat("pipe").type, FileType::kPipe);
  EXPECT_EQ(Stat(".").type, FileType::kDirectory);
  EXPECT_EQ(Stat("/dev/null").type, FileType::kCharacterDevice);
}

TEST_F(FileCalls, ReadsParts) {
  WriteWhole(dir() + "/f", "0123456789");
  auto part = [&](uint64_t offset, uint64_t length) {
    protocol::ReadFile request{next_++, "f", dir(), kUser, kUser, "", offset, length};
    return Ask(request);
  };
  EXPECT_EQ(part(3, 4), "3456");
  EXPECT_EQ(part(3, 0), "3456789");
  EXPECT_EQ(part(0, 100), "0123456789");
  EXPECT_EQ(part(9, 1), "9");
  EXPECT_EQ(part(10, 1), "");
  EXPECT_EQ(part(protocol::kMaxOffset, 1), "");
  EXPECT_FALSE(error_);
}

TEST_F(FileCalls, WritesPartsInPlace) {
  auto request = At<protocol::WriteFile>("f");
  request.mode = 0600;
  Write(request, "0123456789");
  EXPECT_FALSE(error_);
  EXPECT_EQ(Stat("f").mode, 0600U);
  EXPECT_EQ(Stat("f").uid, kUser);
  request = At<protocol::WriteFile>("f");
  request.offset = 3;
  Write(request, "abc");
  EXPECT_EQ(Read("f"), "012abc6789");
  request = At<protocol::WriteFile>("f");
  request.append = true;
  Write(request, "!");
  EXPECT_EQ(Read("f"), "012abc6789!");
  request = At<protocol::WriteFile>("f");
  request.truncate = true;
  Write(request, "new");
  EXPECT_EQ(Read("f"), "new");
  request = At<protocol::WriteFile>("f");
  request.exclusive = true;
  Write(request, "x");
  EXPECT_EQ(error_, FileErrorKind::kExists);
  request = At<protocol::WriteFile>("other");
  request.create = false;
  Write(request, "x");
  EXPECT_EQ(error_, FileErrorKind::kNotFound);
  Write(At<protocol::WriteFile>("/dev/null"), "x");
  EXPECT_EQ(error_, FileErrorKind::kNotRegular);
  Write(At<protocol::WriteFile>("."), "x");
  EXPECT_EQ(error_, FileErrorKind::kIsDirectory);
  EXPECT_EQ(Read("f"), "new");
}

TEST_F(FileCalls, AWholeFileChangesAtItsEndOnly) {
  WriteWhole(dir() + "/f", "former");
  ASSERT_EQ(::chmod((dir() + "/f").c_str(), 0666), 0);
  auto request = At<protocol::WriteFile>("f");
  request.whole = true;
  client_.Send(request);
  client_.Send(protocol::Data{request.stream, "a part"});
  // An answer to another call: the part has had time to arrive.
  EXPECT_EQ(Stat(".").type, FileType::kDirectory);
  EXPECT_EQ(Read("f"), "former");
  client_.Send(protocol::Abort{request.stream});
  Answer(request.stream);
  EXPECT_EQ(error_, FileErrorKind::kOther);
  // What the killed worker left is removed by a process that waited for it.
  UntilNames(1);
  EXPECT_EQ(Read("f"), "former");

  request = At<protocol::WriteFile>("f");
  request.whole = true;
  Write(request, "all of it");
  EXPECT_EQ(Read("f"), "all of it");
  EXPECT_EQ(Stat("f").mode, 0666U);
  EXPECT_THAT(Names("."), ElementsAre("f"));

  ASSERT_EQ(::symlink("f", (dir() + "/link").c_str()), 0);
  request = At<protocol::WriteFile>("link");
  request.whole = true;
  Write(request, "through the link");
  EXPECT_EQ(Read("f"), "through the link");
  EXPECT_EQ(Stat("link", false).type, FileType::kSymlink);

  request = At<protocol::WriteFile>("new");
  request.whole = request.exclusive = true;
  Write(request, "");
  EXPECT_FALSE(error_);
  request.stream = next_++;
  Write(request, "again");
  EXPECT_EQ(error_, FileErrorKind::kExists);
  EXPECT_EQ(Read("new"), "");
}

TEST_F(FileCalls, AWholeFileTakesTheModeThatTheFormerOneHasByThen) {
  WriteWhole(dir() + "/f", "former");
  ASSERT_EQ(::chmod((dir() + "/f").c_str(), 0666), 0);
  auto request = At<protocol::WriteFile>("f");
  request.whole = true;
  client_.Send(request);
  client_.Send(protocol::Data{request.stream, "new"});
  UntilNames(2);
  ASSERT_EQ(::chmod((dir() + "/f").c_str(), 0606), 0);
  client_.Send(protocol::End{request.stream});
  Answer(request.stream);
  EXPECT_EQ(Read("f"), "new");
  EXPECT_EQ(Stat("f").mode, 0606U);
}

TEST_F(FileCalls, ADraftStaysWithItsDirectoryAndGoesWithItsUpload) {
  Ask(At<protocol::MakeDir>("d"));
  auto request = At<protocol::WriteFile>("d/f");
  request.whole = true;
  client_.Send(request);
  client_.Send(protocol::Data{request.stream, "part"});
  UntilNames(1, "d");
  ASSERT_EQ(::rename((dir() + "/d").c_str(), (dir() + "/e").c_str()), 0);
  client_.Send(protocol::Abort{request.stream});
  Answer(request.stream);
  UntilNames(0, "e");
}

// The connection's end is the end of the pipe, too: a worker must not take it for the end of the bytes.
TEST_F(FileCalls, AnUploadThatIsCutOffLeavesTheFormerFile) {
  WriteWhole(dir() + "/f", "former");
  ASSERT_EQ(::chmod((dir() + "/f").c_str(), 0666), 0);
  for (int i = 0; i < 20; ++i) {
    auto request = At<protocol::WriteFile>("f");
    request.whole = true;
    client_.Send(request);
    client_.Send(protocol::Data{request.stream, "a part"});
    client_.Send(protocol::Abort{request.stream});
    Answer(request.stream);
    ASSERT_EQ(Read("f"), "former");
  }
}

TEST_F(FileCalls, SetsAttributes) {
  WriteWhole(dir() + "/f", "12345");
  auto root = At<protocol::SetAttributes>("f", 0);
  root.owner = kUser;
  root.group = 7;
  Ask(root);
  auto request = At<protocol::SetAttributes>("f");
  request.mode = 0640;
  request.size = 2;
  request.modified_ns = 1'000'000'000'123'456'789;
  Ask(request);
  EXPECT_FALSE(error_);
  FileEntry file = Stat("f");
  EXPECT_EQ(file.uid, kUser);
  EXPECT_EQ(file.gid, 7U);
  EXPECT_EQ(file.mode, 0640U);
  EXPECT_EQ(file.size, 2U);
  EXPECT_EQ(file.modified_ns, 1'000'000'000'123'456'789);
  auto early = At<protocol::SetAttributes>("f");
  early.accessed_ns = -1;
  Ask(early);
  EXPECT_EQ(Stat("f").accessed_ns, -1);
  EXPECT_EQ(Stat("f").modified_ns, 1'000'000'000'123'456'789);
  auto first = At<protocol::SetAttributes>("f");
  first.modified_ns = INT64_MIN;
  Ask(first);
  EXPECT_LT(Stat("f").modified_ns, 0);
  auto denied = At<protocol::SetAttributes>("f");
  denied.owner = 0;
  Ask(denied);
  EXPECT_EQ(error_, FileErrorKind::kDenied);
}

TEST_F(FileCalls, RenamesAndReplacesOnRequestOnly) {
  WriteWhole(dir() + "/a", "a");
  WriteWhole(dir() + "/b", "b");
  auto request = At<protocol::RenameFile>("a");
  request.to = "b";
  Ask(request);
  EXPECT_EQ(error_, FileErrorKind::kExists);
  EXPECT_EQ(Read("b"), "b");
  request.stream = next_++;
  request.replace = true;
  Ask(request);
  EXPECT_FALSE(error_);
  EXPECT_THAT(Names("."), ElementsAre("b"));
  EXPECT_EQ(Read("b"), "a");
}

TEST_F(FileCalls, RemovesWhatItWasToldTo) {
  using What = protocol::RemoveFile::What;
  auto remove = [&](const std::string& path, What what) {
    auto request = At<protocol::RemoveFile>(path);
    request.what = what;
    Ask(request);
    return error_;
  };
  protocol::MakeDir make = At<protocol::MakeDir>("d/e");
  make.recursive = true;
  make.mode = 0750;
  Ask(make);
  EXPECT_EQ(Stat("d/e").mode, 0750U);
  WriteWhole(dir() + "/d/e/f", "x");
  WriteWhole(dir() + "/kept", "x");
  ASSERT_EQ(::symlink("../kept", (dir() + "/d/link").c_str()), 0);
  EXPECT_EQ(remove("d", What::kFile), FileErrorKind::kIsDirectory);
  EXPECT_EQ(remove("d", What::kEmptyDirectory), FileErrorKind::kNotEmpty);
  EXPECT_EQ(remove("kept", What::kEmptyDirectory), FileErrorKind::kNotDirectory);
  EXPECT_EQ(remove("gone", What::kTree), FileErrorKind::kNotFound);
  EXPECT_EQ(remove("..", What::kTree), FileErrorKind::kInvalid);
  EXPECT_EQ(remove("/", What::kTree), FileErrorKind::kInvalid);
  EXPECT_EQ(remove("d/.", What::kTree), FileErrorKind::kInvalid);
  EXPECT_EQ(remove("d/e/..", What::kTree), FileErrorKind::kInvalid);
  EXPECT_EQ(remove("d/e/../", What::kTree), FileErrorKind::kInvalid);
  ASSERT_EQ(::symlink("d", (dir() + "/to-d").c_str()), 0);
  EXPECT_EQ(remove("to-d/", What::kTree), std::nullopt);
  EXPECT_EQ(Read("d/e/f"), "x");
  EXPECT_EQ(remove("d/", What::kTree), std::nullopt);
  EXPECT_THAT(Names("."), ElementsAre("kept"));
  EXPECT_EQ(remove("kept", What::kFileOrEmptyDirectory), std::nullopt);
}

TEST_F(FileCalls, MakesLinks) {
  WriteWhole(dir() + "/f", "x");
  auto symbolic = At<protocol::MakeLink>("s");
  symbolic.target = "f";
  Ask(symbolic);
  auto hard = At<protocol::MakeLink>("h", 0);
  hard.target = "f";
  hard.symbolic = false;
  Ask(hard);
  EXPECT_FALSE(error_);
  EXPECT_EQ(Stat("s", false).target, "f");
  EXPECT_EQ(Stat("h").links, 2U);
  symbolic.stream = next_++;
  Ask(symbolic);
  EXPECT_EQ(error_, FileErrorKind::kExists);
}

TEST_F(FileCalls, ADirectoryOfManyNamesComesInPages) {
  constexpr int kNames = 3000;
  for (int i = 0; i < kNames; ++i) WriteWhole(dir() + "/" + std::to_string(100000 + i), "");
  std::vector<std::string> all;
  for (std::string after;;) {
    auto page = Names(".", after, protocol::kMaxListed);
    ASSERT_FALSE(error_);
    if (page.empty()) break;
    all.insert(all.end(), page.begin(), page.end());
    after = page.back();
  }
  EXPECT_EQ(all.size(), static_cast<size_t>(kNames));
  EXPECT_TRUE(std::ranges::is_sorted(all));
}

}  // namespace
}  // namespace sandbar::guest
