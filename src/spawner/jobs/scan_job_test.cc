// Reading snapshots: manifests that notice every change, and what differs between two stacks of layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "os/process.h"
#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ScanTest : public testing::Test {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
    ASSERT_EQ(host_->StartSpawner({"--disk-limit", "btrfs"}), 0);
    auto client = host_->Connect();
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
    ASSERT_TRUE(client_->Call(HelloReq{}));
  }
  void Keep(const std::string& id, std::vector<std::string> on, const std::string& script, const std::string& as) {
    ASSERT_TRUE(client_->Call(TestHost::SmallMachine(id)));
    ConfigureReq configure = TestHost::Image(id);
    configure.snapshots = std::move(on);
    ASSERT_TRUE(client_->Call(configure));
    ASSERT_EQ(host_->Run(id, script).value_or(""), "exit:0\n");
    ASSERT_TRUE(client_->Call(DestroyReq{id, as}));
  }
  // Everything that the layer scanner says.
  std::string Scan(Request request) {
    auto answer = client_->Call(std::move(request));
    if (!answer) return "refused: " + answer.error().message;
    std::string text;
    std::array<char, 4096> buffer{};
    ssize_t n = 0;
    while ((n = ::read(answer->fds.at(0).get(), buffer.data(), buffer.size())) > 0)
      text.append(buffer.data(), static_cast<size_t>(n));
    return text;
  }
  // A shell command in the spawner's mount namespace, where the store is mounted.
  Result<> InStore(const std::string& script) {
    return os::RunProgram({"nsenter", "-t", std::to_string(host_->spawner_pid()), "-m", "--", "sh", "-ec",
                           "cd /run/sandbar/mnt/store; " + script});
  }

  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
};

std::string DigestOf(const std::string& report) {
  return report.substr(report.rfind(' ') + 1);
}

TEST_F(ScanTest, AManifestNoticesEveryChange) {
  ASSERT_NO_FATAL_FAILURE(
      Keep("m1", {},
           "mkdir /data; echo one > /data/a; echo two > '/data/b c'; ln -s a /data/l; "
           "rm /etc/passwd; dd if=/dev/zero of=/data/hole bs=1 count=1 seek=1000000000000 2>/dev/null",
           "snap_1"));
  std::string written = Scan(ManifestReq{"snap_1", false});
  ASSERT_THAT(written, StartsWith("end ")) << written;
  EXPECT_EQ(Scan(ManifestReq{"snap_1", true}), written) << "nothing has changed";
  EXPECT_TRUE(InStore("grep -q '^/etc/passwd w ' manifests/snap_1"));
  EXPECT_TRUE(InStore("grep -q '^/data/b%20c f 644 0:0 4 ' manifests/snap_1"));
  EXPECT_TRUE(InStore("grep -q '^/data/hole .* sparse:' manifests/snap_1"));

  // A file whose content changed and nothing else.
  const std::string open = MakeWritable("snap_1") + "cd snapshots/snap_1/upper/data; ";
  ASSERT_TRUE(InStore(open + "touch -r a keep; printf O | dd of=a conv=notrunc; touch -r keep a; rm keep; "
                             "touch -d @1000 ."));
  std::string found = Scan(ManifestReq{"snap_1", true});
  EXPECT_THAT(found, HasSubstr("differs changed /data/a\n"));
  EXPECT_THAT(found, HasSubstr(" 2 " + DigestOf(written))) << found;  // the directory's time is the other one
  ASSERT_TRUE(InStore("cd snapshots/snap_1/upper/data; rm 'b c'; echo new > z"));
  EXPECT_THAT(Scan(ManifestReq{"snap_1", true}),
              AllOf(HasSubstr("differs missing /data/b%20c\n"), HasSubstr("differs unknown /data/z\n")));
  // A manifest that was changed has another digest, which is what the database remembers.
  ASSERT_TRUE(InStore("sed -i 's/644/600/' manifests/snap_1"));
  EXPECT_NE(DigestOf(Scan(ManifestReq{"snap_1", true})), DigestOf(written));

  EXPECT_THAT(Scan(ManifestReq{"snap_2", true}), StartsWith("refused: snapshot snap_2 is not on this host"));
  ASSERT_TRUE(client_->Call(RemoveSnapshotReq{"snap_1"}));
  EXPECT_FALSE(InStore("test -e manifests/snap_1"));
}

TEST_F(ScanTest, TheDifferenceOfTwoStacks) {
  ASSERT_NO_FATAL_FAILURE(
      Keep("m1", {}, "mkdir /data; echo one > /data/a; echo two > /data/b; rm -r /home/user", "snap_1"));
  ASSERT_NO_FATAL_FAILURE(Keep(
      "m2", {"snap_1"}, "mv /data /moved; echo three > /moved/b; chmod 600 /etc/passwd; mkdir /home/user", "snap_2"));
  DiffReq diff;
  diff.before = {"snap_1"};
  diff.after = {"snap_2"};  // a copy of snap_1 and what was done to it
  diff.before_image = diff.after_image = TestHost::Image("m").layers;
  EXPECT_EQ(Scan(diff),
            "D d 0 0 /data\nA d 0 0 /moved\nM f 63 63 /etc/passwd\nA d 0 0 /home/user\n"
            "A f 4 0 /moved/a\nA f 6 0 /moved/b\nend 6 0\n");
  // Against the image alone; and a stack against itself.
  diff.before.clear();
  EXPECT_THAT(Scan(diff), AllOf(HasSubstr("A f 6 0 /moved/b\n"), Not(HasSubstr("/bin/")), Not(HasSubstr("/data"))));
  diff.before = diff.after;
  EXPECT_EQ(Scan(diff), "end 0 0\n");
}

}  // namespace
}  // namespace sandbar::spawner
