#include "os/uid_lease.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "os/userns.h"

namespace sandbar::os {
namespace {

// Clear of the ids that real machines on this host may be using meanwhile.
constexpr uint32_t kTestFirst = 2'500'000'000;

class UidLeaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/sandbar-uids-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  UidPool Pool(std::vector<IdRange> reserved = {}) {
    auto pool = UidPool::OpenWith(dir_, std::move(reserved), kTestFirst);
    SB_CHECK(pool.has_value());
    return std::move(*pool);
  }
  std::string dir_;
};

TEST_F(UidLeaseTest, TwoPoolsNeverGiveOutTheSameRange) {
  auto a = Pool(), b = Pool();
  auto one = a.Acquire();
  auto two = b.Acquire();
  auto three = a.Acquire();
  ASSERT_TRUE(one && two && three);
  EXPECT_EQ(one->base(), kTestFirst);
  EXPECT_NE(one->base(), two->base());
  EXPECT_NE(three->base(), two->base());
  EXPECT_NE(three->base(), one->base());
}

TEST_F(UidLeaseTest, AReturnedRangeIsLeasedAgain) {
  {
    auto pool = Pool();
    ASSERT_TRUE(pool.Acquire());
  }
  auto again = Pool().Acquire();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->base(), kTestFirst);
}

TEST_F(UidLeaseTest, ReservedIdsAreSkipped) {
  uint64_t first = kTestFirst;
  auto pool = Pool({{first + 70'000, 1}, {first + 2 * kIdsPerMachine, kIdsPerMachine * 2}, {0, 1000}});
  auto one = pool.Acquire();
  auto two = pool.Acquire();
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->base(), first);
  EXPECT_EQ(two->base(), first + 4 * kIdsPerMachine);
}

TEST_F(UidLeaseTest, ARangeWhoseHolderDiedIsFreeOnlyWhenNobodyUsesItsIds) {
  pid_t holder = ::fork();
  if (holder == 0) {
    auto pool = UidPool::OpenWith(dir_, {}, kTestFirst);
    auto lease = pool->Acquire();
    ::_exit(lease ? 0 : 1);  // without giving it back
  }
  int status = 0;
  ASSERT_EQ(::waitpid(holder, &status, 0), holder);
  ASSERT_EQ(status, 0);
  std::array<int, 2> hold{};
  ASSERT_EQ(::pipe(hold.data()), 0);
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  pid_t user = ::fork();
  if (user == 0) {
    char c = 0;
    ::close(hold[1]);
    if (::setresuid(kTestFirst + 5, kTestFirst + 5, kTestFirst + 5) != 0) ::_exit(1);
    [[maybe_unused]] ssize_t n = ::write(ready[1], "r", 1);
    n = ::read(hold[0], &c, 1);
    ::_exit(0);
  }
  char c = 0;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  {
    auto pool = Pool();
    auto lease = pool.Acquire();
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->base(), kTestFirst + kIdsPerMachine);
  }
  for (int fd : {hold[0], hold[1], ready[0], ready[1]}) ::close(fd);
  ASSERT_EQ(::waitpid(user, &status, 0), user);
  auto lease = Pool().Acquire();
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->base(), kTestFirst);
}

TEST(ParseIds, PasswdAndSubuid) {
  auto passwd = ParseIds("root:x:0:0:r:/:/bin/sh\nbad\nme:x:1000:1001::/:\nneg:x:-2:0::\n", 2, false);
  ASSERT_EQ(passwd.size(), 2U);
  EXPECT_EQ(passwd[1].first, 1000U);
  EXPECT_EQ(passwd[1].count, 1U);
  auto sub = ParseIds("me:100000:65536\n# no\nyou:1500000000:10", 1, true);
  ASSERT_EQ(sub.size(), 2U);
  EXPECT_EQ(sub[0].count, 65536U);
  EXPECT_EQ(sub[1].first, 1500000000U);
}

}  // namespace
}  // namespace sandbar::os
