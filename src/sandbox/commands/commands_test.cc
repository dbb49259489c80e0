// Commands and files through their roles, over the fake engine.
#include <gmock/gmock.h>

#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(DomainTest, EnvironmentAndIdentity) {
  Boot();
  CreateSpec spec;
  spec.env = {{"A", "sandbox"}, {"B", "sandbox"}};
  auto view = world.Create(spec);
  auto plain = World::Command({"env"});
  plain.env = {{"B", "command"}};
  auto text = world.Log(view.session.id, world.Exec(view.session.id, plain).id).out;
  for (const char* line : {"A=sandbox\n", "B=command\n", "FROM_IMAGE=yes\n", "USER=ubuntu\n", "LOGNAME=ubuntu\n",
                           "HOME=/vercel\n", "LANG=C.UTF-8\n", "PATH=/vercel/bin:/usr/local/bin:/usr/bin:/bin\n",
                           "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("SUDO_USER")));
  plain.sudo = true;
  auto sudo = world.Log(view.session.id, world.Exec(view.session.id, plain).id).out;
  for (const char* line : {"B=command\n", "USER=root\n", "LOGNAME=root\n", "HOME=/root\n", "SUDO_USER=ubuntu\n",
                           "SUDO_UID=1000\n", "SUDO_GID=1000\n", "PATH=/vercel/bin:/usr/local/bin:/usr/bin:/bin\n"}) {
    EXPECT_THAT(sudo, HasSubstr(line));
  }
  auto id = World::Command({"id"});
  EXPECT_EQ(world.Log(view.session.id, world.Exec(view.session.id, id).id).out, "1000 ubuntu\n");
  id.sudo = true;
  EXPECT_EQ(world.Log(view.session.id, world.Exec(view.session.id, id).id).out, "0 root\n");
  auto pwd = World::Command({"pwd"});
  EXPECT_EQ(world.Log(view.session.id, world.Exec(view.session.id, pwd).id).out, "/vercel\n");
  pwd.cwd = "app/src";
  EXPECT_EQ(world.Log(view.session.id, world.Exec(view.session.id, pwd).id).out, "/vercel/app/src\n");
  pwd.cwd = "/tmp";
  EXPECT_EQ(world.Log(view.session.id, world.Exec(view.session.id, pwd).id).out, "/tmp\n");
}

TEST_F(DomainTest, CommandErrors) {
  Boot();
  auto view = world.Create();
  auto missing = world.Run(world.commands->Start(world.scope, view.session.id, World::Command({"nosuch"})));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kExecutableNotFound);
  EXPECT_EQ(missing.error().message, "[invalid_argument] executable file not found in $PATH: nosuch");
  EXPECT_TRUE(world.Run(world.commands->List(world.scope, view.session.id))->empty());

  auto nul = World::Command({"echo", std::string("a\0b", 3)});
  EXPECT_EQ(world.Run(world.commands->Start(world.scope, view.session.id, nul)).error().code, Code::kBadRequest);
  auto huge = World::Command({"echo"});
  huge.args.assign(12, std::string(100000, 'x'));
  auto r = world.Run(world.commands->Start(world.scope, view.session.id, huge));
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::kBadRequest);
  EXPECT_THAT(r.error().message, HasSubstr("the limit is"));
  auto longest = World::Command({"echo", std::string(200000, 'x')});
  EXPECT_THAT(world.Run(world.commands->Start(world.scope, view.session.id, longest)).error().message,
              HasSubstr("one argument"));
  auto hasty = World::Command({"true"});
  hasty.timeout_ms = 99;
  EXPECT_EQ(world.Run(world.commands->Start(world.scope, view.session.id, hasty)).error().code, Code::kBadRequest);
  auto bad = world.Run(world.commands->Get(world.scope, view.session.id, "cmd_none"));
  EXPECT_EQ(bad.error().code, Code::kNotFound);
}

TEST_F(DomainTest, KillTimeoutAndList) {
  Boot();
  auto view = world.Create();
  const auto& id = view.session.id;
  auto first = world.Exec(id, World::Command({"sleep"}));
  EXPECT_EQ(world.Run(world.commands->Kill(world.scope, id, first.id, 65)).error().code, Code::kBadRequest);
  auto killed = world.Run(world.commands->Kill(world.scope, id, first.id, 15));
  ASSERT_TRUE(killed);
  EXPECT_EQ(world.Wait(id, first.id).exit_code, 143);
  auto unchanged = world.Run(world.commands->Kill(world.scope, id, first.id, 9));
  ASSERT_TRUE(unchanged);
  EXPECT_EQ(unchanged->exit_code, 143);

  auto slow = World::Command({"sleep"});
  slow.timeout_ms = 100;
  auto second = world.Exec(id, slow);
  auto done = world.Wait(id, second.id);
  EXPECT_EQ(done.exit_code, 137);
  EXPECT_TRUE(done.timed_out);
  EXPECT_FALSE(done.oom_killed);

  auto third = world.Exec(id, World::Command({"exit", "3"}));
  EXPECT_EQ(world.Wait(id, third.id).exit_code, 3);
  auto all = world.Run(world.commands->List(world.scope, id));
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 3U);
  EXPECT_EQ(all->front().id, third.id);
  EXPECT_EQ(all->back().id, first.id);
}

TEST_F(DomainTest, OutOfMemoryIsSaid) {
  Boot();
  auto view = world.Create();
  auto command = world.Exec(view.session.id, World::Command({"oom"}));
  auto done = world.Wait(view.session.id, command.id);
  EXPECT_EQ(done.exit_code, 137);
  EXPECT_TRUE(done.oom_killed);
  EXPECT_EQ(world.Log(view.session.id, command.id).err, "sandbar: killed: out of memory (limit 4096 MiB)\n");
  // An ordinary 137 later is not blamed on memory again.
  auto other = world.Exec(view.session.id, World::Command({"exit", "137"}));
  EXPECT_FALSE(world.Wait(view.session.id, other.id).oom_killed);
}

TEST_F(DomainTest, StopEndsCommandsWithTheirOutputAndCodes) {
  Boot();
  auto view = world.Create();
  const auto& id = view.session.id;
  auto gentle = world.Exec(id, World::Command({"sleep"}));
  auto stubborn = world.Exec(id, World::Command({"stubborn"}));
  auto talker = world.Exec(id, World::Command({"echo", "last words"}));
  auto stopped = world.Run(world.sessions->Stop(world.scope, id));
  ASSERT_TRUE(stopped) << stopped.error().message;
  EXPECT_EQ(world.Wait(id, gentle.id).exit_code, 143);
  EXPECT_EQ(world.Wait(id, stubborn.id).exit_code, 137);
  EXPECT_EQ(world.Log(id, talker.id).out, "last words\n");
  EXPECT_EQ(world.Log(id, stubborn.id).out, "");
}

TEST_F(DomainTest, ABrokenConnectionIsMadeAgain) {
  Boot();
  auto view = world.Create();
  const auto& id = view.session.id;
  auto command = world.Exec(id, World::Command({"sleep", "300"}));
  world.Machine(view)->agent.Drop();
  EXPECT_EQ(world.Wait(id, command.id).exit_code, 0);
  auto again = world.Exec(id, World::Command({"echo", "back"}));
  EXPECT_EQ(world.Log(id, again.id).out, "back\n");
}

TEST_F(DomainTest, Files) {
  Boot();
  auto view = world.Create();
  auto& agent = world.Machine(view)->agent;
  agent.files["/vercel/a.txt"] = std::string(3 << 20, 'z');
  auto stream = world.Run(world.files->Read(world.scope, view.session.id, "a.txt", std::nullopt));
  ASSERT_TRUE(stream) << stream.error().message;
  std::string all;
  for (;;) {
    auto piece = world.Run((*stream)->Next());
    ASSERT_TRUE(piece) << piece.error().message;
    if (piece->empty()) break;
    all += *piece;
  }
  EXPECT_EQ(all, agent.files["/vercel/a.txt"]);
  auto missing = world.Run(world.files->Read(world.scope, view.session.id, "b.txt", std::nullopt));
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_TRUE(world.Run(world.files->MakeDir(world.scope, view.session.id, "d", std::nullopt, false)));
  EXPECT_EQ(world.Run(world.files->MakeDir(world.scope, view.session.id, "d", std::nullopt, false)).error().code,
            Code::kFileError);
  EXPECT_TRUE(agent.dirs.contains("/vercel/d"));
  EXPECT_EQ(world.Run(world.files->MakeDir(world.scope, view.session.id, "", std::nullopt, false)).error().code,
            Code::kBadRequest);
  // A reader may outlive the session.
  auto late = world.Run(world.files->Read(world.scope, view.session.id, "a.txt", std::nullopt));
  ASSERT_TRUE(late);
  ASSERT_TRUE(world.Run(world.sessions->Stop(world.scope, view.session.id)));
  bool failed = false;
  for (int i = 0; i < 100 && !failed; ++i) {
    auto piece = world.Run((*late)->Next());
    failed = !piece;
    if (piece && piece->empty()) break;
  }
  EXPECT_TRUE(failed);
}

}  // namespace
}  // namespace sandbar::sandbox
