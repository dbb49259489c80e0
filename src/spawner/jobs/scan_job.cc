#include "spawner/jobs/scan_job.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace sandbar::spawner {
namespace {

constexpr int kReport = 3;
constexpr int kAside = 1000;  // above every number that is given out below
constexpr int kNice = 10;

// In the child. Nothing of ours but the given fds and three that lead nowhere is left in the program that is executed.
[[noreturn]] void Execute(int program, char* const* argv, std::vector<int> fds, const std::vector<Fd>& join) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const Fd& group : join) {
    if (::write(group.get(), "0", 1) != 1) ::_exit(126);
  }
  const int self = ::fcntl(program, F_DUPFD_CLOEXEC, kAside);
  for (int& fd : fds) fd = ::fcntl(fd, F_DUPFD_CLOEXEC, kAside);
  int next = kReport;
  for (int fd : fds) ::dup2(fd, next++);
  ::syscall(SYS_close_range, next, ~0U, CLOSE_RANGE_CLOEXEC);
  ::setpriority(PRIO_PROCESS, 0, kNice);
  // Unlike us it may be killed when memory runs out.
  int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  [[maybe_unused]] ssize_t n = ::write(score, "500", 3);
  char path[] = "PATH=/usr/bin:/bin";
  char* const environment[] = {path, nullptr};
  ::syscall(SYS_execveat, self, "", argv, environment, AT_EMPTY_PATH);
  ::_exit(127);
}

}  // namespace

Result<std::unique_ptr<ScanJob>> ScanJob::Start(JobFacts facts, JobGroup group, int program,
                                                const std::vector<std::string>& words, std::vector<Fd> fds) {
  std::vector<std::string> copies = {"sandbar-scanner"};
  copies.insert(copies.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::unique_ptr<ScanJob> job(new ScanJob(std::move(facts), group));
  SB_TRY(auto join, job->OpenJoin());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
  job->said_ = Fd(ends[0]);
  Fd write_end(ends[1]);
  std::vector<int> given = {write_end.get()};
  for (const Fd& fd : fds) given.push_back(fd.get());
  pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) Execute(program, argv.data(), std::move(given), join);
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return FailErrno("pidfd");
  job->Watch(std::move(process));
  return job;
}

Result<> ScanJob::Finish() {
  SB_TRY(int status, Reap());
  // What went wrong it has said to whoever reads the report; a status that is not its own it has not.
  if (status > 1) return Fail(Code::kInternal, "sandbar-scanner ended with " + std::to_string(status));
  return {};
}

}  // namespace sandbar::spawner
