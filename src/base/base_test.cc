#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/result.h"

namespace sandbar {
namespace {

TEST(Bytes, RoundTrip) {
  ByteWriter w;
  w.U8(7);
  w.U32(0xdeadbeef);
  w.U64(0x0123456789abcdefULL);
  w.I32(-5);
  w.I64(-6);
  w.Str("h\0i");
  w.StrList({"a", "", "ccc"});
  ByteReader r(w.str());
  EXPECT_EQ(r.U8(), 7);
  EXPECT_EQ(r.U32(), 0xdeadbeef);
  EXPECT_EQ(r.U64(), 0x0123456789abcdefULL);
  EXPECT_EQ(r.I32(), -5);
  EXPECT_EQ(r.I64(), -6);
  EXPECT_EQ(r.Str(), "h");
  EXPECT_EQ(r.StrList(), (std::vector<std::string>{"a", "", "ccc"}));
  EXPECT_TRUE(r.Done());
}

TEST(Bytes, EveryTruncationFailsAndLatches) {
  ByteWriter w;
  w.U32(3);
  w.Str("hello");
  w.StrList({"x", "yy"});
  for (size_t n = 0; n < w.str().size(); ++n) {
    ByteReader r(std::string_view(w.str()).substr(0, n));
    r.U32();
    r.Str();
    r.StrList();
    EXPECT_FALSE(r.ok()) << n;
    EXPECT_EQ(r.U64(), 0U) << "after a failure everything reads as zero";
    EXPECT_FALSE(r.Done());
  }
}

TEST(Bytes, HugeCountsDoNotAllocate) {
  ByteWriter w;
  w.U32(0xffffffff);
  EXPECT_TRUE(ByteReader(w.str()).StrList().empty());
  ByteReader r(w.str());
  EXPECT_TRUE(r.Str().empty());
  EXPECT_FALSE(r.ok());
}

TEST(Bytes, StrHonoursItsBound) {
  ByteWriter w;
  w.Str("12345");
  ByteReader ok(w.str());
  EXPECT_EQ(ok.Str(5), "12345");
  ByteReader too_long(w.str());
  EXPECT_TRUE(too_long.Str(4).empty());
  EXPECT_FALSE(too_long.ok());
}

TEST(Ids, AreDistinctAndWellFormed) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    std::string id = NewId("sbx_");
    EXPECT_EQ(id.size(), 28U);
    EXPECT_TRUE(id.starts_with("sbx_"));
    EXPECT_EQ(id.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"), id.npos);
    EXPECT_TRUE(seen.insert(id).second);
  }
  EXPECT_EQ(NewLabel("sb-", 12).size(), 15U);
  EXPECT_NE(NewSandboxName(), NewSandboxName());
  EXPECT_EQ(Hex("\x01\xff"), "01ff");
}

Result<int> Half(int n) {
  if (n % 2 != 0) return Fail(Code::kBadRequest, "odd");
  return n / 2;
}
Result<int> Quarter(int n) {
  SB_TRY(int h, Half(n));
  SB_TRYV(Half(h));
  return h / 2;
}

TEST(ResultTest, TryPassesErrorsUp) {
  EXPECT_EQ(*Quarter(8), 2);
  auto r = Quarter(6);
  ASSERT_FALSE(r.has_value());
  EXPECT_EQ(r.error().code, Code::kBadRequest);
  EXPECT_EQ(std::move(r.error()).Context("quarter").message, "quarter: odd");
  auto e = FailErrno("open x", ENOENT).error();
  EXPECT_EQ(e.sys_errno, ENOENT);
  EXPECT_NE(e.message.find("No such file"), std::string::npos);
}

TEST(FdTest, ClosesOnceAndMoves) {
  Fd a(::dup(0));
  ASSERT_TRUE(a);
  int n = a.get();
  Fd b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): moved-from is defined as empty
  EXPECT_EQ(b.get(), n);
  b.Reset();
  EXPECT_EQ(::fcntl(n, F_GETFD), -1);
}

}  // namespace
}  // namespace sandbar
