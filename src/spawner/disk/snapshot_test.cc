// Snapshots: what a machine wrote stays under a name, is stacked under other machines, and outlives the spawner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SnapshotTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
    Begin();
  }
  void Begin() {
    ASSERT_EQ(host_->StartSpawner({"--disk-limit", GetParam()}), 0);
    auto client = host_->Connect();
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
    auto hello = client_->Call(HelloReq{});
    ASSERT_TRUE(hello);
    copies_ = std::get<HelloResp>(hello->body).copies_snapshots;
    EXPECT_EQ(copies_, std::string_view(GetParam()) == "btrfs");
  }
  // A machine on top of these snapshots.
  Result<Answer> Start(const std::string& id, std::vector<std::string> snapshots) {
    BootReq boot = TestHost::SmallMachine(id);
    if (std::string_view(GetParam()) == "none") boot.limits.disk_bytes = 0;
    SB_TRYV(client_->Call(boot));
    ConfigureReq configure = TestHost::Image(id);
    configure.snapshots = std::move(snapshots);
    return client_->Call(configure);
  }
  std::string Run(const std::string& id, const std::string& script) {
    return host_->Run(id, script).value_or("no answer");
  }
  Result<Answer> Keep(const std::string& id, const std::string& snapshot) {
    return client_->Call(DestroyReq{id, snapshot});
  }
  std::vector<std::string> List(const std::string& after = "") {
    auto answer = client_->Call(ListSnapshotsReq{after});
    if (!answer) return {"error: " + answer.error().message};
    return std::get<SnapshotsResp>(answer->body).snapshots;
  }

  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
  bool copies_ = false;
};

TEST_P(SnapshotTest, FilesDeletesAndRenamesSurviveInAnotherMachine) {
  ASSERT_TRUE(Start("m1", {}));
  ASSERT_EQ(Run("m1",
                "echo one > /etc/note; chown 1000:1000 /etc/note; chmod 640 /etc/note; rm -r /home/user; "
                "mv /opt/moved /opt/there; ln -s note /etc/link; mkdir /data; echo x > /data/x"),
            "exit:0\n");
  auto kept = Keep("m1", "snap_one");
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_THAT(List(), ElementsAre("snap_one"));

  // Another machine has other host ids; owners must come out the same inside.
  auto started = Start("m2", {"snap_one"});
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_EQ(Run("m2", "cat /etc/link; stat -c '%u:%g %a' /etc/note; ls /home; ls /opt; cat /data/x"),
            "one\n1000:1000 640\nthere\nx\nexit:0\n");
  // A directory that came from a snapshot can be renamed.
  EXPECT_EQ(Run("m2", "mv /data /moved && rm /etc/link && echo two > /etc/note && ls /moved"), "x\nexit:0\n");
  ASSERT_TRUE(Keep("m2", "snap_two"));
  EXPECT_THAT(List(), ElementsAre("snap_one", "snap_two"));

  std::vector<std::string> stack = {"snap_two"};
  if (!copies_) stack.push_back("snap_one");
  ASSERT_TRUE(Start("m3", stack));
  EXPECT_EQ(Run("m3", "cat /etc/note; ls /moved; ls /data; ls /etc/link"),
            "two\nx\nls: /data: No such file or directory\nls: /etc/link: No such file or directory\nexit:1\n");
  // The parent is as it was, also while a child of it runs.
  ASSERT_TRUE(Start("m4", {"snap_one"}));
  EXPECT_EQ(Run("m4", "cat /etc/note; ls /data"), "one\nx\nexit:0\n");
}

TEST_P(SnapshotTest, FilesOfDifferentSessionsAreDifferentFiles) {
  std::vector<std::string> chain;
  for (int i = 0; i < 3; ++i) {
    const std::string id = "n" + std::to_string(i);
    ASSERT_TRUE(Start(id, chain));
    ASSERT_EQ(Run(id, "mkdir /d" + id + "; for f in 1 2 3 4; do echo $f > /d" + id + "/$f; done"), "exit:0\n");
    ASSERT_TRUE(Keep(id, "snap_" + id));
    if (copies_) chain.clear();
    chain.insert(chain.begin(), "snap_" + id);
  }
  ASSERT_TRUE(Start("last", chain));
  // Programs like cp and tar take two names with the same number for the same file.
  EXPECT_EQ(Run("last", "find /dn* -exec stat -c '%d:%i' {} + | sort | uniq -d | wc -l"), "0\nexit:0\n");
}

TEST_P(SnapshotTest, ManyMachinesShareOneAndNoneSeesTheOthers) {
  ASSERT_TRUE(Start("m0", {}));
  ASSERT_EQ(Run("m0", "echo base > /base"), "exit:0\n");
  ASSERT_TRUE(Keep("m0", "snap_base"));
  for (int i = 1; i <= 5; ++i) {
    std::string id = "m" + std::to_string(i);
    ASSERT_TRUE(Start(id, {"snap_base"}));
    EXPECT_EQ(Run(id, "cat /base; ls /own* 2>/dev/null | wc -l; echo " + id + " > /own" + id), "base\n0\nexit:0\n");
  }
}

TEST_P(SnapshotTest, OutlivesTheSpawner) {
  ASSERT_TRUE(Start("m1", {}));
  ASSERT_TRUE(Start("m2", {}));
  ASSERT_EQ(Run("m1", "echo kept > /kept"), "exit:0\n");
  ASSERT_TRUE(Keep("m1", "snap_kept"));
  client_->Close();
  host_->KillSpawner();
  ASSERT_NO_FATAL_FAILURE(Begin());
  // The machine that ran is gone, what was published is not.
  EXPECT_THAT(List(), ElementsAre("snap_kept"));
  ASSERT_TRUE(Start("m3", {"snap_kept"}));
  EXPECT_EQ(Run("m3", "cat /kept"), "kept\nexit:0\n");
}

TEST_P(SnapshotTest, ErrorsLoseNothing) {
  ASSERT_TRUE(Start("m1", {}));
  ASSERT_EQ(Run("m1", "echo first > /f"), "exit:0\n");
  EXPECT_EQ(Keep("m1", "../x").error().code, Code::kBadRequest);
  EXPECT_EQ(Run("m1", "cat /f"), "first\nexit:0\n");
  ASSERT_TRUE(Keep("m1", "snap_a"));
  // Asked again after a lost answer: done is done.
  EXPECT_TRUE(Keep("m1", "snap_a"));
  EXPECT_EQ(Keep("m1", "snap_b").error().code, Code::kNotFound);
  ASSERT_TRUE(Start("m2", {}));
  ASSERT_EQ(Run("m2", "echo second > /f"), "exit:0\n");
  EXPECT_EQ(Keep("m2", "snap_a").error().code, Code::kConflict);
  // Its processes are gone, but not what it wrote: under another name it can still be kept.
  EXPECT_TRUE(Keep("m2", "snap_c"));
  ASSERT_TRUE(Start("m6", {"snap_c"}));
  EXPECT_EQ(Run("m6", "cat /f"), "second\nexit:0\n");
  ASSERT_TRUE(Start("m3", {"snap_a"}));
  EXPECT_EQ(Run("m3", "cat /f"), "first\nexit:0\n");
  auto missing = Start("m4", {"snap_none"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("snap_none"));
  EXPECT_EQ(Start("m5", {"../machines"}).error().code, Code::kNotFound);
}

TEST_P(SnapshotTest, RemovedOnesAreGone) {
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(Start(name, {}));
    ASSERT_TRUE(Keep(name, std::string("snap_") + name));
  }
  EXPECT_THAT(List("snap_a"), ElementsAre("snap_b", "snap_c"));
  EXPECT_TRUE(client_->Call(RemoveSnapshotReq{"snap_b"}));
  EXPECT_TRUE(client_->Call(RemoveSnapshotReq{"snap_b"}));
  EXPECT_THAT(List(), ElementsAre("snap_a", "snap_c"));
  EXPECT_THAT(List("snap_c"), IsEmpty());
}

TEST_P(SnapshotTest, AMachineThatEndedByItselfCanStillBeKept) {
  ASSERT_TRUE(Start("m1", {}));
  ASSERT_EQ(Run("m1", "echo late > /late"), "exit:0\n");
  ASSERT_TRUE(client_->Call(SetDeadlineReq{"m1", 1}));
  client_->Close();
  auto client = host_->Connect();
  ASSERT_TRUE(client);
  client_ = std::move(*client);
  ASSERT_TRUE(client_->Call(HelloReq{}));
  ASSERT_TRUE(Keep("m1", "snap_late"));
  ASSERT_TRUE(Start("m2", {"snap_late"}));
  EXPECT_EQ(Run("m2", "cat /late"), "late\nexit:0\n");
}

// Only where snapshots are stacked are there chains.
class ChainTest : public SnapshotTest {};

TEST_P(ChainTest, AFlattenedChainShowsTheSame) {
  const char* steps[] = {
      // Files, links, a sparse file, a directory that hides one of the image, deletions of the image's.
      "mkdir -p /a/b/c /a/d; echo 1 > /a/b/c/f; ln /a/b/c/f /a/hard; ln -s ../b /a/d/link; chown 1000:1000 /a/d; "
      "chmod 2750 /a/d; truncate -s 1000000 /a/sparse; rm -r /home/user; mkfifo /a/pipe; echo gone > /a/gone",
      // Renames of directories of the image and of the layer below.
      "mv /opt/moved /opt/there; mv /a/b /a/e; echo 2 > /a/e/new; rm /a/gone; rm /a/e/c/f; echo x > /opt/there/x",
      // A directory deleted and made anew, and one renamed a second time, with a rename inside.
      "rm -r /a/d; mkdir /a/d; echo fresh > /a/d/fresh; mv /a/e /z; mv /z/c /z/cc; mv /opt/there /opt/far; "
      "echo 3 > /a/hard; rm /opt/far/x",
      // One of the image moved into a new directory.
      "mkdir /n; mv /opt/far /n/far; mkdir /home/user; echo back > /home/user/back; chmod 700 /z; touch -d '2001-02-03 "
      "04:05:06' /z/new",
  };
  std::vector<std::string> chain;
  for (size_t i = 0; i < std::size(steps); ++i) {
    std::string id = "s" + std::to_string(i);
    auto started = Start(id, chain);
    ASSERT_TRUE(started) << started.error().message;
    ASSERT_EQ(Run(id, steps[i]), "exit:0\n");
    ASSERT_TRUE(Keep(id, "snap_" + std::to_string(i)));
    chain.insert(chain.begin(), "snap_" + std::to_string(i));
  }
  auto flat = client_->Call(FlattenReq{chain, "flat"});
  ASSERT_TRUE(flat) << flat.error().message;
  // Asked again: it is there.
  EXPECT_TRUE(client_->Call(FlattenReq{chain, "flat"}));
  EXPECT_THAT(List(), ElementsAre("flat", "snap_0", "snap_1", "snap_2", "snap_3"));
  ASSERT_TRUE(Start("chained", chain));
  ASSERT_TRUE(Start("flattened", {"flat"}));
  const char* everything =
      "cd /; find a n opt home z etc bin -exec stat -c '%n %F %a %u:%g %s %h %Y' {} + | grep -v ' directory ' | sort; "
      "find a n opt home z etc -type d -exec stat -c '%n %a %u:%g %Y' {} + | sort; "
      "find a n opt home z etc -type f -exec md5sum {} + | sort -k2; find a -type l -exec readlink {} +";
  std::string whole = Run("chained", everything);
  EXPECT_THAT(whole, HasSubstr("home/user/back"));
  EXPECT_THAT(whole, HasSubstr("z/cc"));
  EXPECT_THAT(whole, HasSubstr("n/far"));
  EXPECT_EQ(Run("flattened", everything), whole);
  // What was hidden stays hidden, and the copy can be worked with.
  EXPECT_EQ(Run("flattened", "mv /z /y && mv /n/far /opt/again && rm -r /a && ls / /opt | grep -c far"), "0\nexit:1\n");
  EXPECT_EQ(client_->Call(FlattenReq{{"snap_0", "missing"}, "bad"}).error().code, Code::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Disks, ChainTest, testing::Values("none"));
INSTANTIATE_TEST_SUITE_P(Disks, SnapshotTest, testing::Values("btrfs", "none"));

}  // namespace
}  // namespace sandbar::spawner
