// The processes that do what takes as long as there are files or bytes: nobody else waits for them, each owner has a
// share, they end with what they work on, and leave nothing behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "os/openat.h"
#include "os/process.h"
#include "os/unix_socket.h"
#include "spawner/disk/disk.h"
#include "spawner/jobs/tidy_job.h"
#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

using testing::HasSubstr;
using testing::Not;

class JobsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
    Begin();
  }
  void Begin() {
    ASSERT_EQ(host_->StartSpawner({"--disk-limit", "btrfs", "--disk-pool-bytes", "3221225472"}), 0);
    client_ = Connect();
  }
  std::unique_ptr<TestClient> Connect() {
    auto client = host_->Connect();
    EXPECT_TRUE(client) << client.error().message;
    EXPECT_TRUE((*client)->Call(HelloReq{}));
    return std::move(*client);
  }
  static BootReq Roomy(const std::string& id) {
    BootReq boot = TestHost::SmallMachine(id);
    boot.limits.memory_bytes = 2ULL << 30;
    boot.limits.disk_bytes = 2ULL << 30;
    return boot;
  }
  // What the script leaves becomes a snapshot, and is not yet on the disk.
  void Keep(const std::string& id, const std::string& script, const std::string& as) {
    ASSERT_TRUE(client_->Call(Roomy(id)));
    ASSERT_TRUE(client_->Call(TestHost::Image(id)));
    ASSERT_EQ(host_->Run(id, script).value_or(""), "exit:0\n");
    ASSERT_TRUE(client_->Call(DestroyReq{id, as}));
  }
  ConfigureReq From(const std::string& id, const std::string& snapshot) {
    ConfigureReq configure = TestHost::Image(id);
    configure.snapshots = {snapshot};
    return configure;
  }
  Result<> InStore(const std::string& script) {
    return os::RunProgram({"nsenter", "-t", std::to_string(host_->spawner_pid()), "-m", "--", "sh", "-ec",
                           "cd /run/sandbar/mnt/store; " + script});
  }
  // The answers to these requests, sent at once: when each came, in milliseconds from now.
  std::map<uint32_t, int64_t> Times(const std::vector<Request>& requests, std::map<uint32_t, Response>* bodies) {
    const int64_t begin = os::BootTimeMs();
    uint32_t tag = 1000;
    for (const Request& r : requests) client_->Send(r, ++tag);
    std::map<uint32_t, int64_t> out;
    while (out.size() < requests.size()) {
      pollfd readable{client_->fd(), POLLIN, 0};
      if (::poll(&readable, 1, 60'000) != 1) break;
      auto packet = os::ReceivePacket(client_->fd(), kMaxMessage, true);
      if (!packet) break;
      if (!*packet) continue;
      auto response = DecodeResponse((*packet)->bytes);
      if (!response || response->tag == 0) continue;
      out[response->tag - 1000] = os::BootTimeMs() - begin;
      if (bodies != nullptr) (*bodies)[response->tag - 1000] = response->body;
    }
    return out;
  }
  // A scan that cannot go on because nobody hears what it says.
  Result<Answer> Stuck(const std::string& owner) {
    DiffReq diff;
    diff.after = {"snap_many"};
    diff.before_image = diff.after_image = TestHost::Image("m").layers;
    diff.owner = owner;
    return client_->Call(diff);
  }
  void KeepMany() {
    Keep("many",
         "mkdir /d; cd /d; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do for j in 1 2 3 4 5 6 "
         "7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do : > $i-$j-$(printf %0200d "
         "1); done; done",
         "snap_many");
  }
  static std::string Drain(int pipe) {
    std::string text;
    std::array<char, 4096> buffer{};
    ssize_t n = 0;
    while ((n = ::read(pipe, buffer.data(), buffer.size())) > 0) text.append(buffer.data(), static_cast<size_t>(n));
    return text;
  }
  // Of the spawner's own children.
  std::vector<pid_t> Scanners() {
    std::vector<pid_t> out;
    const std::string spawner = std::to_string(host_->spawner_pid());
    std::istringstream children(
        os::ReadFile("/proc/" + spawner + "/task/" + spawner + "/children", 1 << 16).value_or(""));
    for (pid_t pid = 0; children >> pid;) {
      if (os::ReadFile("/proc/" + std::to_string(pid) + "/comm", 64).value_or("").starts_with("sandbar-scanner"))
        out.push_back(pid);
    }
    return out;
  }

  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(JobsTest, NobodyWaitsForTheCopyOfASnapshotThatIsNotOnTheDiskYet) {
  ASSERT_NO_FATAL_FAILURE(Keep("m1", "dd if=/dev/zero of=/big bs=1M count=600 2>/dev/null", "snap_big"));
  ASSERT_TRUE(client_->Call(Roomy("m2")));
  ASSERT_TRUE(client_->Call(Roomy("other")));
  std::map<uint32_t, Response> bodies;
  auto at = Times({From("m2", "snap_big"), ListSnapshotsReq{}, TestHost::Image("other"), UsageReq{"other"}}, &bodies);
  ASSERT_EQ(at.size(), 4U);
  for (auto& [tag, body] : bodies) EXPECT_FALSE(std::holds_alternative<ErrorResp>(body)) << tag;
  // The copy writes 600 MB; the others have nothing to do with that.
  for (uint32_t other : {2U, 3U, 4U}) EXPECT_LT(at[other] * 3, at[1]) << other;
  EXPECT_EQ(host_->Run("m2", "ls /big; test -d /proc/1").value_or(""), "/big\nexit:0\n");
}

TEST_F(JobsTest, NobodyWaitsForWhatIsRemoved) {
  ASSERT_NO_FATAL_FAILURE(Keep("m1", "dd if=/dev/zero of=/big bs=1M count=600 2>/dev/null", "snap_big"));
  ASSERT_TRUE(client_->Call(Roomy("m2")));
  ASSERT_TRUE(client_->Call(TestHost::Image("m2")));
  ASSERT_EQ(host_->Run("m2", "dd if=/dev/zero of=/big bs=1M count=600 2>/dev/null").value_or(""), "exit:0\n");
  const int64_t begin = os::BootTimeMs();
  auto at = Times({RemoveSnapshotReq{"snap_big"}, DestroyReq{"m2", ""}, ListSnapshotsReq{}}, nullptr);
  ASSERT_EQ(at.size(), 3U);
  // Under no name any more at once, and in the end nowhere.
  EXPECT_FALSE(InStore("test -e snapshots/snap_big"));
  EXPECT_TRUE(Eventually([&] { return InStore("! find . -maxdepth 2 -name '.gone-*' | grep -q .").has_value(); }));
  EXPECT_LT(at[3] * 3, os::BootTimeMs() - begin) << "renames are answered, gigabytes are removed later";
}

TEST_F(JobsTest, AMachineThatIsDestroyedWhileItsCopyIsMadeLeavesNothing) {
  ASSERT_NO_FATAL_FAILURE(Keep("m1", "dd if=/dev/zero of=/big bs=1M count=200 2>/dev/null", "snap_big"));
  ASSERT_TRUE(client_->Call(Roomy("m2")));
  std::map<uint32_t, Response> bodies;
  Times({From("m2", "snap_big"), From("m2", "snap_big"), DestroyReq{"m2", ""}}, &bodies);
  ASSERT_EQ(bodies.size(), 3U);
  EXPECT_EQ(std::get<ErrorResp>(bodies[1]).code, static_cast<int>(Code::kStopped));
  EXPECT_EQ(std::get<ErrorResp>(bodies[2]).code, static_cast<int>(Code::kConflict));
  EXPECT_TRUE(std::holds_alternative<UsageResp>(bodies[3]));
  // The spare slots are all that is left.
  EXPECT_TRUE(Eventually([&] { return InStore("! ls machines/*/upper/big").has_value(); }));
  ASSERT_TRUE(client_->Call(Roomy("m3")));
  ASSERT_TRUE(client_->Call(From("m3", "snap_big")));
  EXPECT_EQ(host_->Run("m3", "ls /big").value_or(""), "/big\nexit:0\n");
}

TEST_F(JobsTest, ASnapshotIsSealedSoonAndAtTheNextStartAtTheLatest) {
  ASSERT_NO_FATAL_FAILURE(Keep("m1", "echo one > /one", "snap_one"));
  const char* sealed = "btrfs property get -ts snapshots/snap_one ro | grep -q true; ! test -e snapshots/snap_one/work";
  EXPECT_TRUE(Eventually([&] { return InStore(sealed).has_value(); }));
  // As if the spawner had been killed before it came to that.
  ASSERT_TRUE(
      InStore("btrfs property set -f snapshots/snap_one ro false; mkdir -p snapshots/snap_one/work/work/x "
              "machines/w-left; : > manifests/.gone-x; : > memory/.gone-x"));
  client_->Close();
  host_->KillSpawner();
  ASSERT_NO_FATAL_FAILURE(Begin());
  EXPECT_TRUE(Eventually([&] { return InStore(sealed).has_value(); }));
  EXPECT_TRUE(Eventually([&] { return InStore("! ls -A memory manifests | grep -q gone").has_value(); }));
  ASSERT_TRUE(client_->Call(Roomy("m2")));
  ASSERT_TRUE(client_->Call(From("m2", "snap_one")));
  EXPECT_EQ(host_->Run("m2", "cat /one").value_or(""), "one\nexit:0\n");
}

TEST_F(JobsTest, AReaderEndsWithWhatItReads) {
  ASSERT_NO_FATAL_FAILURE(KeepMany());
  auto scan = Stuck("a");
  ASSERT_TRUE(scan) << scan.error().message;
  ASSERT_TRUE(Eventually([&] { return Scanners().size() == 1; }));
  ASSERT_TRUE(client_->Call(RemoveSnapshotReq{"snap_many"}));
  EXPECT_TRUE(Eventually([&] { return Scanners().empty(); }));
  EXPECT_THAT(Drain(scan->fds.at(0).get()), Not(HasSubstr("end ")));
}

TEST_F(JobsTest, ReadersHaveSharesByOwner) {
  ASSERT_NO_FATAL_FAILURE(KeepMany());
  std::vector<Answer> scans;
  for (const char* owner : {"a", "a"}) {
    auto scan = Stuck(owner);
    ASSERT_TRUE(scan) << scan.error().message;
    scans.push_back(std::move(*scan));
  }
  auto third = Stuck("a");
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::kTooMany);
  EXPECT_THAT(third.error().message, HasSubstr("try again later"));
  auto other = Stuck("b");
  ASSERT_TRUE(other) << other.error().message;
  // Making a layer durable is another share: nobody's questions stand in its way.
  auto seal = client_->Call(ManifestReq{"snap_many", false, "a"});
  ASSERT_TRUE(seal) << seal.error().message;
  EXPECT_THAT(Drain(seal->fds.at(0).get()), HasSubstr("end "));
  // Each has a control group of its own, with an end to its memory.
  ASSERT_TRUE(Eventually([&] { return Scanners().size() == 3; }));
  auto pids = Scanners();
  std::set<std::string> groups;
  for (pid_t pid : pids) {
    const std::string text = os::ReadFile("/proc/" + std::to_string(pid) + "/cgroup", 1 << 16).value_or("");
    std::istringstream lines(text);
    std::string group;
    for (std::string line; std::getline(lines, line);) {
      const bool memory = line.find(":memory:") != std::string::npos || line.starts_with("0::");
      if (memory && line.find("/sandbar/") != std::string::npos) group = line.substr(line.rfind(':') + 1);
    }
    ASSERT_FALSE(group.empty()) << text;
    groups.insert(group);
    const std::string machine = group.substr(0, group.rfind('/'));
    uint64_t limit = 0;
    for (const char* file : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      for (const char* name : {"/memory.limit_in_bytes", "/memory.max"}) {
        std::ifstream in(file + machine + name);
        if (in >> limit) break;
      }
      if (limit != 0) break;
    }
    EXPECT_GT(limit, 64ULL << 20) << machine;
    EXPECT_LE(limit, 512ULL << 20) << machine;
  }
  EXPECT_EQ(groups.size(), 3U);
  // What they leave behind is nothing.
  scans.clear();
  other->fds.clear();
  EXPECT_TRUE(Eventually([&] { return Scanners().empty(); }));
}

// The names of a directory, and files with names still to come: what a scan has to remember of what a guest made.
TEST_F(JobsTest, ManyNamesFitIntoAReadersMemory) {
  ASSERT_NO_FATAL_FAILURE(Keep("m1", "mkdir /d; echo x > /d/seed", "snap_links"));
  ASSERT_TRUE(InStore(MakeWritable("snap_links") + "python3 -c '\n"
                                                   "import os\n"
                                                   "top = \"snapshots/snap_links/upper/d/\"\n"
                                                   "for i in range(20000):\n"
                                                   "    os.close(os.open(top + f\"a{i}\", os.O_CREAT | os.O_WRONLY))\n"
                                                   "    os.link(top + f\"a{i}\", top + f\"z{i}\")\n"
                                                   "for i in range(3):\n"
                                                   "    os.mkdir(top + f\"m{i}\")\n"
                                                   "    f = top + f\"m{i}/0\"\n"
                                                   "    os.close(os.open(f, os.O_CREAT | os.O_WRONLY))\n"
                                                   "    for j in range(1, 60000): os.link(f, top + f\"m{i}/{j}\")\n"
                                                   "'"));
  auto scan = client_->Call(ManifestReq{"snap_links", false, "a"});
  ASSERT_TRUE(scan) << scan.error().message;
  EXPECT_THAT(Drain(scan->fds.at(0).get()), HasSubstr("end ")) << "and not killed for its memory";
}

TEST_F(JobsTest, AMachineWhoseCopyWasRefusedHasNoDrives) {
  Keep("m1", "dd if=/dev/zero of=/opt/f bs=1M count=300 2>/dev/null", "snap_a");
  ASSERT_TRUE(client_->Call(CreateDriveReq{"drv_a", 1ULL << 30}));
  ASSERT_TRUE(client_->Call(Roomy("m2")));
  ConfigureReq configure = From("m2", "snap_a");
  configure.mounts = {{"drv_a", "/mnt", true, 0, 0}};
  // The copy ends with its snapshot.
  std::map<uint32_t, Response> bodies;
  Times({configure, RemoveSnapshotReq{"snap_a"}}, &bodies);
  ASSERT_TRUE(std::holds_alternative<ErrorResp>(bodies[1]));
  auto removed = client_->Call(RemoveDriveReq{"drv_a"});
  EXPECT_TRUE(removed) << removed.error().message;
}

TEST(TidyJobTest, OneThatNeverFinishedLeavesItsWorkToTheNext) {
  std::string dir = "/var/tmp/sandbar-tidy-XXXXXX";
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  auto data = os::OpenPath(dir, O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(data);
  ASSERT_EQ(::mkdir((dir + "/mount").c_str(), 0700), 0);
  auto disk = OpenPlainDisk({.data = data->get(), .mount_point = dir + "/mount"});
  ASSERT_TRUE(disk) << disk.error().message;
  auto slot = (*disk)->Create();
  ASSERT_TRUE(slot) << slot.error().message;
  ASSERT_TRUE((*disk)->Destroy(*slot));
  ASSERT_TRUE((*disk)->untidy());
  auto job = TidyJob::Start(nullptr, disk->get());
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_FALSE((*disk)->untidy());
  job->reset();
  EXPECT_TRUE((*disk)->untidy());
  disk->reset();
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace sandbar::spawner
