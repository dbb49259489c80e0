// The journal as an interface of its own: what a machine writes about itself.
#include "store/journal.h"

#include <gtest/gtest.h>

#include "support/store/store_test.h"

namespace sandbar::store {
namespace {

using testing::MakeSandbox;
using testing::MakeSession;

class JournalTest : public testing::StoreTest {
 protected:
  Journal& journal() { return *store_; }
};

TEST_F(JournalTest, SessionsAreWrittenAndForgotten) {
  const Sandbox box = MakeSandbox("a");
  ASSERT_TRUE(store_->InsertSandbox(box));
  Session session = MakeSession(box);
  ASSERT_TRUE(journal().WriteSession(session));
  EXPECT_EQ(journal().UnfinishedSessions()->size(), 1U);
  session.status = Status::kStopped;
  ASSERT_TRUE(journal().WriteSession(session));
  EXPECT_TRUE(journal().UnfinishedSessions()->empty());
  EXPECT_EQ(journal().SessionIds(KeyOf(box))->size(), 1U) << "a new state of the same row";
  EXPECT_EQ((*store_->FindSandbox(KeyOf(box)))->version, 1) << "the record is not the journal's";

  Command command{"cmd_1", session.id, "sh", "/", {}, 7, {}, {}, false, false};
  ASSERT_TRUE(journal().InsertCommand(command));
  ASSERT_TRUE(journal().AddNotice({1, "t", "p", "a", "text"}));
  ASSERT_TRUE(journal().ForgetSessions(KeyOf(box)));
  ASSERT_TRUE(journal().ForgetSessions(KeyOf(box)));
  EXPECT_FALSE(*journal().FindSession(session.id));
  EXPECT_FALSE(*journal().FindCommand(session.id, "cmd_1"));
  EXPECT_TRUE(journal().Notices(KeyOf(box))->empty());
  EXPECT_TRUE(*store_->FindSandbox(KeyOf(box))) << "the record stays";
}

TEST_F(JournalTest, NotesLayersAndPool) {
  ASSERT_TRUE(journal().SetNote("delete/t/p/a", "alone"));
  ASSERT_TRUE(journal().SetNote("boot", "1"));
  EXPECT_EQ(journal().Notes("delete/")->size(), 1U);
  ASSERT_TRUE(journal().SetNote("delete/t/p/a", ""));
  EXPECT_TRUE(journal().Notes("delete/")->empty());
  EXPECT_EQ(journal().Notes("")->at("boot"), "1");

  ASSERT_TRUE(journal().SaveLayer({"l", "d", 1, 2, 3, 4, ""}));
  ASSERT_TRUE(journal().SaveLayer({"l", "d", 1, 2, 3, 4, "torn"}));
  EXPECT_EQ((*journal().FindLayer("l"))->damage, "torn");
  EXPECT_EQ(journal().AllLayers()->size(), 1U);
  ASSERT_TRUE(journal().DeleteLayer("l"));
  EXPECT_FALSE(*journal().FindLayer("l"));

  ASSERT_TRUE(journal().InsertPoolMember({"m-1", "img", 2, 5}));
  ASSERT_TRUE(journal().DeletePoolMember("m-1"));
  EXPECT_TRUE(journal().PoolMembers()->empty());
  EXPECT_TRUE(journal().PurgeLog());
}

TEST_F(JournalTest, AStopIsWrittenWholeOrNotAtAll) {
  const Sandbox box = MakeSandbox("a");
  Add(box);
  Session stopped = MakeSession(box);
  stopped.status = Status::kStopped;
  Snapshot snapshot;
  snapshot.id = "snap_1";
  auto fail = [](Sandbox&) -> Result<> { return Fail(Code::kNoSpace, "no"); };
  EXPECT_EQ(store_->SaveStopped(stopped, snapshot, fail).error().code, Code::kNoSpace);
  EXPECT_FALSE(*store_->FindSnapshot("snap_1"));
  EXPECT_EQ(journal().UnfinishedSessions()->size(), 1U) << "recovery still finds it";
  auto head = [](Sandbox& s) -> Result<> {
    s.current_snapshot = "snap_1";
    return {};
  };
  ASSERT_TRUE(store_->SaveStopped(stopped, snapshot, head));
  EXPECT_TRUE(*store_->FindSnapshot("snap_1"));
  EXPECT_TRUE(journal().UnfinishedSessions()->empty());
  EXPECT_EQ((*store_->FindSandbox(KeyOf(box)))->current_snapshot, "snap_1");

  // A session of a sandbox that is gone is not written.
  ASSERT_TRUE(store_->DeleteSandbox(KeyOf(box)));
  EXPECT_FALSE(store_->SaveSession(stopped, nullptr));
  EXPECT_FALSE(*journal().FindSession(stopped.id));
}

}  // namespace
}  // namespace sandbar::store
