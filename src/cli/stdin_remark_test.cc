#include "cli/stdin_remark.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

namespace sandbar::cli {
namespace {

TEST(StdinRemark, OnlyBytesThatNobodyReads) {
  Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(HasUnreadBytes(null.get()));
  EXPECT_FALSE(HasUnreadBytes(-1)) << "closed";
  Fd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(HasUnreadBytes(zero.get()));
  Fd terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  EXPECT_FALSE(HasUnreadBytes(terminal.get()));

  char name[] = "/tmp/sandbar-stdin-XXXXXX";
  Fd file(::mkstemp(name));
  ASSERT_TRUE(file);
  ::unlink(name);
  EXPECT_FALSE(HasUnreadBytes(file.get())) << "empty";
  ASSERT_EQ(::write(file.get(), "abc", 3), 3);
  EXPECT_FALSE(HasUnreadBytes(file.get())) << "read to its end";
  ASSERT_EQ(::lseek(file.get(), 1, SEEK_SET), 1);
  EXPECT_TRUE(HasUnreadBytes(file.get()));

  for (const bool socket : {false, true}) {
    int fds[2];
    ASSERT_EQ(socket ? ::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) : ::pipe(fds), 0);
    Fd in(fds[0]), out(fds[1]);
    EXPECT_FALSE(HasUnreadBytes(in.get()));
    ASSERT_EQ(::write(out.get(), "x", 1), 1);
    EXPECT_TRUE(HasUnreadBytes(in.get()));
    char c = 0;
    ASSERT_EQ(::read(in.get(), &c, 1), 1) << "looking takes nothing away";
    out.Reset();
    EXPECT_FALSE(HasUnreadBytes(in.get())) << "ended";
  }
}

}  // namespace
}  // namespace sandbar::cli
