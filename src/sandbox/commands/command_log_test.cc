// Command output on disk: bounds, holes, readers that pin and readers that come late.
#include "sandbox/commands/command_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "sandbox/commands/log_files.h"
#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using testing::HasSubstr;

std::string Spew(uint64_t from, uint64_t to) {
  std::string out;
  for (uint64_t i = from; i < to; ++i) out += engine::FakeSpewByte(i);
  return out;
}

// The logs are trimmed while this walks: a file that went meanwhile means "not settled", never a smaller sum.
uint64_t DirBytes(const std::string& dir) {
  constexpr uint64_t kUnsettled = UINT64_MAX;
  uint64_t n = 0;
  std::error_code error;
  std::filesystem::recursive_directory_iterator at(dir, error);
  for (; !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
    if (at->is_directory(error)) continue;
    const uint64_t size = error ? 0 : at->file_size(error);
    if (error) return kUnsettled;
    n += size;
  }
  return error ? kUnsettled : n;
}

class LogTest : public DomainTest {
 protected:
  static constexpr uint64_t kSegment = 64 << 10;
  void SmallLogs() {
    world.config.log_segment_bytes = kSegment;
    world.config.log_head_bytes = 4 * kSegment;
    world.config.log_tail_bytes = 4 * kSegment;
  }
  std::string DirOf(const store::Command& c) { return world.config.data_dir + "/logs/" + c.session + "/" + c.id; }
};

TEST_F(LogTest, KeepsTheFirstAndTheLastPartAndSaysWhatIsMissing) {
  SmallLogs();
  Boot();
  auto view = world.Create();
  constexpr uint64_t kTotal = 4 << 20;
  auto command = world.Exec(view.session.id, World::Command({"spew", std::to_string(kTotal)}));
  EXPECT_EQ(world.Wait(view.session.id, command.id).exit_code, 0);
  EXPECT_LE(DirBytes(DirOf(command)), 8 * kSegment);
  auto text = world.Log(view.session.id, command.id);
  EXPECT_EQ(text.out.size() + text.gap, kTotal);
  EXPECT_GT(text.gap, 0U);
  ASSERT_GE(text.out.size(), 6 * kSegment) << "most of what may be kept is kept";
  EXPECT_EQ(text.out.substr(0, 3 * kSegment), Spew(0, 3 * kSegment));
  EXPECT_EQ(text.out.substr(text.out.size() - 2 * kSegment), Spew(kTotal - 2 * kSegment, kTotal));
}

TEST_F(LogTest, ASessionsOldestOutputGoesAndReadersAreTold) {
  SmallLogs();
  world.config.log_session_bytes = 8 * kSegment;
  Boot();
  auto view = world.Create();
  constexpr uint64_t kEach = 3 * kSegment;
  std::vector<store::Command> commands;
  for (int i = 0; i < 6; ++i) {
    commands.push_back(world.Exec(view.session.id, World::Command({"spew", std::to_string(kEach)})));
    EXPECT_EQ(world.Wait(view.session.id, commands.back().id).exit_code, 0);
  }
  const std::string all = world.config.data_dir + "/logs/" + view.session.id;
  EXPECT_TRUE(world.Until([&] { return DirBytes(all) <= 9 * kSegment; })) << DirBytes(all);
  auto first = world.Log(view.session.id, commands.front().id);
  EXPECT_EQ(first.out.size(), 0U);
  EXPECT_EQ(first.gap, kEach);
  auto last = world.Log(view.session.id, commands.back().id);
  EXPECT_EQ(last.out, Spew(0, kEach));
  EXPECT_EQ(last.gap, 0U);
}

TEST_F(LogTest, DroppingSparesTheRunningAndGivesReadersUnderWayAGap) {
  SmallLogs();
  Boot();
  auto view = world.Create();
  constexpr uint64_t kEach = 3 * kSegment;
  auto spared = world.Exec(view.session.id, World::Command({"spew", std::to_string(kEach)}));
  auto dropped = world.Exec(view.session.id, World::Command({"spew", std::to_string(kEach)}));
  for (const auto& c : {spared, dropped}) EXPECT_EQ(world.Wait(view.session.id, c.id).exit_code, 0);
  auto reader = world.Run(world.commands->OpenLog(world.scope, view.session.id, dropped.id));
  ASSERT_TRUE(reader);
  auto first = world.Run((*reader)->Next());
  ASSERT_TRUE(first);
  EXPECT_GT(first->bytes.size(), 0U);
  const std::string all = world.config.data_dir + "/logs";
  ASSERT_TRUE(TrimLogs(all, {view.session.id}, 0, {spared.id}));
  ASSERT_TRUE(TrimLogs(all, {view.session.id}, 0, {spared.id})) << "again, when there is nothing left to drop";
  auto rest = world.ReadLog(reader->get());
  EXPECT_GT(rest.gap, 0U);
  EXPECT_EQ(first->bytes.size() + rest.out.size() + rest.gap, kEach);
  EXPECT_EQ(world.Log(view.session.id, dropped.id).gap, kEach);
  EXPECT_EQ(world.Log(view.session.id, spared.id).out, Spew(0, kEach));
}

TEST_F(LogTest, AProjectsSessionsTogetherAndAllProjectsTogetherHaveACap) {
  SmallLogs();
  world.config.project.log_bytes = 6 * kSegment;
  world.config.log_total_bytes = 9 * kSegment;
  Boot();
  constexpr uint64_t kEach = 2 * kSegment;
  const std::string all = world.config.data_dir + "/logs";
  std::vector<store::Command> mine, others;
  const Scope home = world.scope;
  for (int i = 0; i < 5; ++i) {
    auto view = world.Create();
    mine.push_back(world.Exec(view.session.id, World::Command({"spew", std::to_string(kEach)})));
    EXPECT_EQ(world.Wait(view.session.id, mine.back().id).exit_code, 0);
  }
  EXPECT_TRUE(world.Until([&] { return DirBytes(all) <= 6 * kSegment; })) << DirBytes(all);
  EXPECT_EQ(world.Log(mine.front().session, mine.front().id).gap, kEach) << "what ended first, and it is said";
  EXPECT_EQ(world.Log(mine.back().session, mine.back().id).out, Spew(0, kEach)) << "not what ended last";
  // Another project is within its own cap; together they are over the server's.
  world.scope.project = "prj_other";
  for (int i = 0; i < 3; ++i) {
    auto view = world.Create();
    others.push_back(world.Exec(view.session.id, World::Command({"spew", std::to_string(kEach)})));
    EXPECT_EQ(world.Wait(view.session.id, others.back().id).exit_code, 0);
  }
  EXPECT_TRUE(world.Until([&] { return DirBytes(all) <= 9 * kSegment; })) << DirBytes(all);
  EXPECT_EQ(world.Log(others.back().session, others.back().id).out, Spew(0, kEach));
  world.scope = home;
}

TEST_F(LogTest, WhatRunsIsNotDroppedForACap) {
  SmallLogs();
  world.config.project.log_bytes = 2 * kSegment;
  Boot();
  auto view = world.Create();
  auto other = world.Create();
  constexpr uint64_t kTotal = 6 << 20, kEach = 3 * kSegment;
  auto spec = World::Command({"spew", std::to_string(kTotal)});
  spec.follow_from_start = true;
  auto running = world.Run(world.commands->Start(world.scope, view.session.id, spec));
  ASSERT_TRUE(running) << running.error().message;
  auto& agent = world.Machine(view)->agent;
  ASSERT_TRUE(world.Until([&] { return agent.kept_bytes() > protocol::kOutputWindow - protocol::kMaxData; }));
  auto ended = world.Exec(other.session.id, World::Command({"spew", std::to_string(kEach)}));
  EXPECT_EQ(world.Wait(other.session.id, ended.id).exit_code, 0);
  EXPECT_TRUE(world.Until([&] { return DirBytes(DirOf(ended)) < kSegment; })) << "what has ended makes room";
  auto text = world.ReadLog(running->log.get());
  EXPECT_EQ(text.gap, 0U);
  EXPECT_TRUE(text.out == Spew(0, kTotal)) << "who followed from the start gets every byte";
}

TEST_F(LogTest, PinnedReadersGetEveryByteAndHoldTheCommandBack) {
  SmallLogs();
  Boot();
  auto view = world.Create();
  constexpr uint64_t kTotal = 6 << 20;
  auto spec = World::Command({"spew", std::to_string(kTotal)});
  spec.follow_from_start = true;
  auto started = world.Run(world.commands->Start(world.scope, view.session.id, spec));
  ASSERT_TRUE(started) << started.error().message;
  auto first = world.Run(started->log->Next());
  ASSERT_TRUE(first);
  // Nobody reads for a while: the command waits, within its window.
  auto& agent = world.Machine(view)->agent;
  ASSERT_TRUE(world.Until([&] { return agent.kept_bytes() > protocol::kOutputWindow - protocol::kMaxData; }));
  for (int i = 0; i < 20; ++i) world.Step();
  EXPECT_LE(agent.kept_bytes(), protocol::kOutputWindow);
  EXPECT_FALSE(world.Run(world.commands->Get(world.scope, view.session.id, started->command.id))->exit_code);
  // A late reader is not held back by the pinned one nor does it hold anyone.
  auto late = world.Run(world.commands->OpenLog(world.scope, view.session.id, started->command.id));
  ASSERT_TRUE(late);
  ASSERT_TRUE(world.Run((*late)->Next()));
  auto rest = world.ReadLog(started->log.get());
  EXPECT_EQ(rest.gap, 0U);
  EXPECT_TRUE(first->bytes + rest.out == Spew(0, kTotal));
  EXPECT_EQ(world.Wait(view.session.id, started->command.id).exit_code, 0);
  EXPECT_LE(DirBytes(DirOf(started->command)), 8 * kSegment);
}

TEST_F(LogTest, APinIsReleasedWithItsReader) {
  SmallLogs();
  Boot();
  auto view = world.Create();
  auto spec = World::Command({"spew", std::to_string(8 << 20)});
  spec.follow_from_start = true;
  auto started = world.Run(world.commands->Start(world.scope, view.session.id, spec));
  ASSERT_TRUE(started);
  ASSERT_TRUE(world.Until([&] { return world.Machine(view)->agent.kept_bytes() > protocol::kOutputWindow / 2; }));
  started->log.reset();
  EXPECT_EQ(world.Wait(view.session.id, started->command.id).exit_code, 0);
}

TEST_F(LogTest, AReaderThatNeverReadsDoesNotHoldUpAStop) {
  Boot();
  auto view = world.Create();
  auto spec = World::Command({"spew", std::to_string(8 << 20)});
  spec.follow_from_start = true;
  auto started = world.Run(world.commands->Start(world.scope, view.session.id, spec));
  ASSERT_TRUE(started);
  ASSERT_TRUE(world.Until([&] { return world.Machine(view)->agent.kept_bytes() > protocol::kOutputWindow / 2; }));
  auto stopped = world.Run(world.sessions->Stop(world.scope, view.session.id));
  ASSERT_TRUE(stopped);
  // What was stored can still be read, by the old reader too, and it ends.
  auto text = world.ReadLog(started->log.get());
  EXPECT_GE(text.out.size(), protocol::kOutputWindow / 2);
  EXPECT_TRUE(world.Wait(view.session.id, started->command.id).exit_code);
}

TEST_F(LogTest, SeveralReadersFollowTheSameCommand) {
  Boot();
  auto view = world.Create();
  auto command = world.Exec(view.session.id, World::Command({"sleep", "50"}));
  auto one = world.Run(world.commands->OpenLog(world.scope, view.session.id, command.id));
  auto two = world.Run(world.commands->OpenLog(world.scope, view.session.id, command.id));
  EXPECT_EQ(world.ReadLog(one->get()).out, "");
  EXPECT_EQ(world.ReadLog(two->get()).out, "");
  auto err = world.Exec(view.session.id, World::Command({"err", "oh"}));
  auto text = world.Log(view.session.id, err.id);
  EXPECT_EQ(text.err, "oh\n");
  EXPECT_EQ(text.out, "");
}

TEST_F(LogTest, AgentsGapsAreKept) {
  Boot();
  auto view = world.Create();
  auto command = world.Exec(view.session.id, World::Command({"gap", "12345"}));
  auto text = world.Log(view.session.id, command.id);
  EXPECT_EQ(text.gap, 12345U);
  EXPECT_EQ(text.out, "after\n");
  EXPECT_EQ(world.Wait(view.session.id, command.id).exit_code, 0);
  EXPECT_EQ(world.Log(view.session.id, command.id).gap, 12345U) << "and again from the files";
}

// One log by itself, in a directory of its own.
class CommandLogTest : public testing::Test {
 protected:
  CommandLogTest()
      : core_(world_.ioc.get_executor(), Small(world_), Dependencies{.secret = world_.secret}),
        dir_(world_.dir + "/log") {}
  static Config Small(const World& world) {
    Config c = world.config;
    c.log_segment_bytes = 4096;
    c.log_head_bytes = 8192;
    c.log_tail_bytes = 8192;
    return c;
  }
  std::shared_ptr<CommandLog> Open() {
    auto state = CommandLog::Scan(dir_);
    EXPECT_TRUE(state);
    return std::make_shared<CommandLog>(&core_, dir_, *state);
  }
  World::Text Read(const std::shared_ptr<CommandLog>& log) {
    auto reader = log->NewReader({}).value();
    return world_.ReadLog(reader.get());
  }
  World world_;
  Core core_;
  std::string dir_;
};

TEST_F(CommandLogTest, RepeatsAreSkippedAndMissingBytesCounted) {
  auto log = Open();
  log->Append(0, 1, "abcdef");
  log->Append(3, 1, "defgh");  // replay after a reconnect
  log->Append(0, 1, "abc");
  log->Append(10, 2, "kl");  // 8 and 9 never came
  log->Hole(5, 2);           // known already
  EXPECT_EQ(log->received(), 12U);
  log->Finish();
  auto text = Read(log);
  EXPECT_EQ(text.out, "abcdefgh");
  EXPECT_EQ(text.err, "kl");
  EXPECT_EQ(text.gap, 2U);
}

TEST_F(CommandLogTest, LyingOffsetsDoNotWrap) {
  auto log = Open();
  log->Append(UINT64_MAX - 2, 1, "abcdef");
  log->Hole(UINT64_MAX - 2, 10);
  log->Hole(0, UINT64_MAX);
  EXPECT_EQ(log->received(), 0U);
  log->Append(0, 1, "ok");
  log->Finish();
  EXPECT_EQ(Read(log).out, "ok");
}

TEST_F(CommandLogTest, ATornRecordIsCutAndTheOffsetKnown) {
  Open()->Append(0, 1, "first");
  {
    auto log = Open();
    log->Append(5, 1, "second");
  }
  const std::string file = dir_ + "/00000000000000000000";
  const auto size = std::filesystem::file_size(file);
  for (uint64_t cut = 1; cut < 11; ++cut) {
    std::filesystem::resize_file(file, size - cut);
    auto log = Open();
    EXPECT_EQ(log->received(), 5U) << cut;
    log->Append(5, 1, "second");
    EXPECT_EQ(log->received(), 11U);
    log->Finish();
    EXPECT_EQ(Read(log).out, "firstsecond");
  }
}

TEST_F(CommandLogTest, GoesOnAfterARestartInALaterSegment) {
  for (uint64_t i = 0; i < 40; ++i) {
    auto log = Open();
    ASSERT_EQ(log->received(), i * 1000);
    log->Append(i * 1000, 1, Spew(i * 1000, i * 1000 + 1000));
  }
  auto log = Open();
  log->Finish();
  auto text = Read(log);
  EXPECT_EQ(text.out.size() + text.gap, 40000U);
  EXPECT_EQ(text.out.substr(0, 4000), Spew(0, 4000));
  EXPECT_EQ(text.out.substr(text.out.size() - 4000), Spew(36000, 40000));
}

TEST_F(CommandLogTest, ADamagedSegmentIsSkipped) {
  auto log = Open();
  for (uint64_t i = 0; i < 6; ++i) log->Append(i * 1000, 1, Spew(i * 1000, i * 1000 + 1000));
  {
    Fd fd(::open((dir_ + "/00000000000000000000").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), "\xff\xff\xff\xff\xff", 5, 0), 5);
  }
  log->Finish();
  auto text = Read(log);
  EXPECT_EQ(text.gap, 4000U);
  EXPECT_EQ(text.out, Spew(4000, 6000));
}

TEST_F(CommandLogTest, AFullDiskBecomesAHole) {
  auto log = Open();
  log->Append(0, 1, "before");
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit tight = old;
  tight.rlim_cur = 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  log->Append(6, 1, "does not fit any more");
  log->Append(27, 1, "nor does this");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(log->received(), 40U) << "the agent is not held back";
  log->Append(40, 1, "after");
  log->Finish();
  auto text = Read(log);
  EXPECT_EQ(text.out, "beforeafter");
  EXPECT_EQ(text.gap, 34U);
}

TEST_F(CommandLogTest, PinsLimitAcknowledgements) {
  auto log = Open();
  auto slow = log->NewReader({.pinned = true}).value();
  log->Append(0, 1, "0123456789");
  EXPECT_EQ(log->AckLimit(), 0U);
  auto chunk = world_.Run(slow->Next());
  EXPECT_EQ(chunk->bytes, "0123456789");
  EXPECT_EQ(log->AckLimit(), 10U);
  log->Append(10, 1, "x");
  EXPECT_EQ(log->AckLimit(), 10U);
  int progress = 0;
  log->OnProgress([&] { ++progress; });
  slow.reset();
  EXPECT_EQ(progress, 1);
  EXPECT_EQ(log->AckLimit(), 11U);
}

TEST_F(CommandLogTest, AReaderBeginsAtAnyPosition) {
  auto log = Open();
  std::string all;
  for (int i = 0; i < 600; ++i) {
    const std::string piece = "line " + std::to_string(i) + "\n";
    log->Append(all.size(), i % 2 == 0 ? 1 : 2, piece);
    all += piece;
  }
  log->Hole(all.size(), 100);
  log->Finish();
  const uint64_t end = all.size() + 100;
  for (uint64_t since :
       {uint64_t{0}, uint64_t{1}, uint64_t{4095}, uint64_t{4096}, all.size() - 1, all.size(), end - 7, end}) {
    auto reader = log->NewReader({.since = since});
    ASSERT_TRUE(reader);
    std::string seen;
    uint64_t gap = 0;
    while (true) {
      auto chunk = world_.Run((*reader)->Next());
      ASSERT_TRUE(chunk);
      if (chunk->bytes.empty() && chunk->gap == 0) break;
      seen += chunk->bytes;
      gap += chunk->gap;
    }
    EXPECT_EQ(seen, since < all.size() ? all.substr(since) : "") << since;
    EXPECT_EQ(gap, std::min(uint64_t{100}, end - since)) << since;
  }
  EXPECT_EQ(log->NewReader({.since = end + 1}).error().code, Code::kBadRequest);
}

TEST_F(CommandLogTest, OfATerminalTheLastPartIsKept) {
  auto log = Open();
  log->KeepTailOnly();
  std::string all;
  for (int i = 0; i < 2000; ++i) {
    const std::string piece = std::to_string(i) + std::string(100, '.');
    log->Append(all.size(), 1, piece);
    all += piece;
  }
  log->Finish();
  auto text = Read(log);
  EXPECT_GT(text.out.size(), 4096U);
  EXPECT_LT(text.out.size(), 16'384U);
  EXPECT_TRUE(all.ends_with(text.out));
  EXPECT_EQ(text.gap + text.out.size(), all.size());
}

}  // namespace
}  // namespace sandbar::sandbox
