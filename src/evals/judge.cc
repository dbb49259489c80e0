#include "evals/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "llm/transcript.h"

namespace sandbar::evals {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = 4 << 20;      // of a `file` check
constexpr size_t kMaxRun = 4 << 20;       // what a command of `runs` may print
constexpr size_t kMaxOutputs = 1000;      // files
constexpr uint64_t kMaxBytes = 64 << 20;  // of all outputs together
constexpr size_t kMaxListing = 4 << 20;
constexpr int64_t kCheckerMs = 120'000;
constexpr int64_t kHelperMs = 60'000;
constexpr int64_t kGraceMs = 300'000;  // for copying, and should we be killed

// The solution's server has a copy of the working directory of its own: the checker's is not its to write.
constexpr char kServeCopy[] =
    "mkdir -m 0755 /tmp/sandbar-serve && cp -a \"$1\"/. /tmp/sandbar-serve && chown -R 65534:65534 /tmp/sandbar-serve";
constexpr char kServeStart[] =
    "cd /tmp/sandbar-serve && setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs "
    "env -u SUDO_USER -u SUDO_UID -u SUDO_GID -u SUDO_COMMAND HOME=/tmp/sandbar-serve sh -c \"$1\" "
    "> /tmp/sandbar-serve.log 2>&1 < /dev/null; touch /tmp/sandbar-serve.ended";
// 30 seconds; when the command has ended, one more, because it may have left a server in the background.
constexpr char kServeWait[] =
    "i=0; until (exec 3<>/dev/tcp/127.0.0.1/$1) 2>/dev/null; do i=$((i+1)); "
    "[ ! -e /tmp/sandbar-serve.ended ] || i=$((i+29)); [ $i -lt 300 ] || exit 1; sleep 0.1; done";

bool IsPattern(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

std::string Absolute(const std::string& cwd, const std::string& path) {
  const fs::path full = path.starts_with('/') ? fs::path(path) : fs::path(cwd) / path;
  return full.lexically_normal().string();
}

bool HasPart(std::string_view path, std::string_view part) {
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (path.substr(at, end - at) == part) return true;
    at = end + 1;
  }
  return false;
}

bool Matches(const std::string& pattern, const std::string& cwd, std::string_view path) {
  if (!IsPattern(pattern)) return Absolute(cwd, pattern) == path;
  constexpr std::string_view kModules = "node_modules";
  if (HasPart(path, kModules) && !HasPart(pattern, kModules)) return false;
  if (pattern.starts_with('/')) return path.starts_with('/') && llm::GlobMatches(pattern.substr(1), path.substr(1));
  const std::string below = cwd + "/";
  return path.starts_with(below) && llm::GlobMatches(pattern, path.substr(below.size()));
}

bool MayHoldOutputs(const std::vector<std::string>& patterns, const std::string& cwd, const std::string& directory) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return IsPattern(pattern) || Absolute(cwd, pattern).starts_with(directory + "/");
  });
}

bool NeedsFiles(const EvalCase& c) {
  return (c.body.assert_ && c.body.outputs) ||
         std::ranges::any_of(c.body.checks, [](const EvalCheck& k) { return k.file || k.checker; });
}

CheckResult Blank(const EvalCheck& check) {
  CheckResult result;
  result.name = CheckName(check);
  result.soft = check.soft;
  result.threshold = check.threshold.value_or(1);
  result.demands = DemandsWork(check);
  return result;
}

}  // namespace

bool Collide(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && (b.size() == a.size() || b[a.size()] == '/');
}

bool IsOutput(const std::vector<std::string>& patterns, const std::string& cwd, std::string_view path) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return Matches(pattern, cwd, path); });
}

Result<ChosenOutputs> ChooseOutputs(const std::vector<std::string>& patterns, const std::string& cwd,
                                    const std::vector<llm::BoxChange>& changes) {
  ChosenOutputs out;
  uint64_t bytes = 0;
  for (const llm::BoxChange& change : changes) {
    const bool directory = change.type == "directory";
    if (directory && change.deleted && MayHoldOutputs(patterns, cwd, change.path)) out.emptied.push_back(change.path);
    if (directory || !IsOutput(patterns, cwd, change.path)) continue;
    const bool regular = change.type == "file" && !change.deleted;
    const bool spelled = std::ranges::any_of(
        patterns, [&](const std::string& p) { return !IsPattern(p) && Absolute(cwd, p) == change.path; });
    if (regular)
      out.copied.push_back(change.path);
    else
      out.removed.push_back(change.path);
    if (!regular && !change.deleted && spelled) out.odd.push_back(change.path + " is a " + change.type);
    if (!regular) continue;
    // A sparse file has its full size here.
    bytes += std::min(change.size, kMaxBytes + 1);
    if (bytes > kMaxBytes || out.copied.size() > kMaxOutputs)
      return Fail(
          Code::kTooLarge,
          fmt::format("`outputs`: at most {} files of {} MiB together are copied to a checker; at {} ({} bytes) "
                      "it is more",
                      kMaxOutputs, kMaxBytes >> 20, llm::OneLine(change.path, 200), change.size));
  }
  return out;
}

Task<> TrialJudge::Drop(std::string name) {
  SB_CO_TRYV(co_await bench_.remove(name));
  std::erase(*bench_.boxes, name);
  co_return Result<>{};
}

Task<llm::Box> TrialJudge::Fork(int64_t timeout_ms) {
  std::string from = bench_.prepared;
  std::optional<std::string> net = "deny";
  SB_CO_TRY(llm::Box box, co_await llm::ForkBox(bench_.api, std::move(from), timeout_ms + kGraceMs, std::move(net)));
  bench_.boxes->push_back(box.name);
  Task<> putting = Put(box, nullptr);
  SB_CO_TRYV(co_await bench_.interruptible(std::move(putting)));
  co_return box;
}

Task<> TrialJudge::Collect() {
  if (!NeedsFiles(*bench_.of)) co_return Result<>{};
  SB_CO_TRYV(co_await llm::StopBox(bench_.api, bench_.trial));
  std::string from = bench_.trial.name;
  std::optional<std::string> net = "deny";
  SB_CO_TRY(llm::Box reader, co_await llm::ForkBox(bench_.api, std::move(from), kGraceMs, std::move(net)));
  bench_.boxes->push_back(reader.name);
  Task<> reading = Read(reader);
  SB_CO_TRYV(co_await bench_.interruptible(std::move(reading)));
  co_return co_await Drop(reader.name);
}

Task<> TrialJudge::Read(llm::Box reader) {
  for (const EvalCheck& check : bench_.of->body.checks) {
    if (!check.file) continue;
    std::string path = check.file->path;
    auto text = co_await llm::ReadFileIn(bench_.api, reader, std::move(path), kMaxFile);
    texts_.emplace(&*check.file, std::move(text));
  }
  if (bench_.of->body.outputs && !bench_.of->body.outputs->empty()) SB_CO_TRYV(co_await ReadOutputs(std::move(reader)));
  co_return Result<>{};
}

Task<> TrialJudge::ReadOutputs(llm::Box reader) {
  std::string before = bench_.prepared, after = bench_.trial.name;
  SB_CO_TRY(auto changes, co_await llm::DiffBoxes(bench_.api, std::move(before), std::move(after)));
  SB_CO_TRY(ChosenOutputs chosen, ChooseOutputs(*bench_.of->body.outputs, bench_.trial.cwd, changes));
  removed_ = std::move(chosen.removed);
  removed_.insert(removed_.end(), chosen.emptied.begin(), chosen.emptied.end());
  odd_ = std::move(chosen.odd);
  for (const std::string& path : chosen.copied) {
    std::string name = path;
    auto text = co_await llm::ReadFileIn(bench_.api, reader, std::move(name), kMaxBytes);
    if (!text) co_return Fail(text.error().code, "`outputs`: " + path + ": " + text.error().message);
    // A plain file: no set-user-id bit, no owner and no attribute comes along.
    outputs_.push_back({path, "", std::move(*text), 0755});
  }
  co_return Result<>{};
}

// `check`: its files win, so that outputs in their way are left out.
Task<> TrialJudge::Put(llm::Box box, const CheckerCheck* check) {
  const auto in_the_way = [&](const std::string& path) {
    if (check == nullptr) return false;
    const auto hit = [&](const auto& own) { return Collide(Absolute(box.cwd, own.first), path); };
    return std::ranges::any_of(check->files, hit) || std::ranges::any_of(check->runs, hit);
  };
  if (!removed_.empty()) {
    // A directory that is gone takes only those of its files along that are outputs.
    const std::string find =
        "for f; do if [ -d \"$f\" ]; then find \"$f\" ! -type d -print0; else printf '%s\\0' "
        "\"$f\"; fi; done";
    std::vector<std::string> argv{"sh", "-c", find, "sh"};
    argv.insert(argv.end(), removed_.begin(), removed_.end());
    SB_CO_TRY(llm::Ran found, co_await llm::RunIn(bench_.api, box, std::move(argv), kHelperMs, kMaxListing));
    std::vector<std::string> gone{"rm", "-f", "--"};
    for (size_t at = 0; at < found.out.size();) {
      const size_t end = std::min(found.out.find('\0', at), found.out.size());
      std::string path = found.out.substr(at, end - at);
      at = end + 1;
      if (IsOutput(*bench_.of->body.outputs, box.cwd, path) && !in_the_way(path)) gone.push_back(std::move(path));
    }
    SB_CO_TRY(llm::Ran done, co_await llm::RunIn(bench_.api, box, std::move(gone), kHelperMs));
    if (done.exit_code != 0)
      co_return Fail(Code::kUnavailable, "files that the trial deleted: " + llm::OneLine(done.err, 300));
  }
  std::vector<client::TarItem> items;
  for (const client::TarItem& item : outputs_)
    if (!in_the_way(item.name)) items.push_back(item);
  co_return co_await llm::WriteFiles(bench_.api, std::move(box), std::move(items));
}

Task<> TrialJudge::RunInPlace(llm::Box box, const CheckerCheck* check, std::string command, llm::Ran* ran) {
  SB_CO_TRYV(co_await Put(box, check));
  std::vector<std::string> argv{"sh", "-c", command};
  const int64_t timeout_ms = check->timeout_ms.value_or(kCheckerMs);
  SB_CO_TRY(*ran, co_await llm::RunIn(bench_.api, std::move(box), std::move(argv), timeout_ms, kMaxRun));
  co_return Result<>{};
}

// Work in a fork of the prepared sandbox, without a network, that nobody has touched. The fork goes afterwards.
Task<> TrialJudge::InFreshFork(const CheckerCheck* check, std::function<Task<>(llm::Box)> work) {
  std::string from = bench_.prepared;
  std::optional<std::string> net = "deny";
  const int64_t life = check->timeout_ms.value_or(kCheckerMs) + kGraceMs;
  SB_CO_TRY(llm::Box box, co_await llm::ForkBox(bench_.api, std::move(from), life, std::move(net)));
  bench_.boxes->push_back(box.name);
  Task<> working = work(box);
  SB_CO_TRYV(co_await bench_.interruptible(std::move(working)));
  co_return co_await Drop(box.name);
}

// What went wrong; empty when the server of the solution answers.
Task<std::string> TrialJudge::Serve(llm::Box box, const ServeSpec* serve) {
  std::vector<std::string> start{"sh", "-c", kServeStart, "sh", serve->command};
  SB_CO_TRYV(co_await llm::StartIn(bench_.api, box, std::move(start)));
  std::vector<std::string> wait{"bash", "-c", kServeWait, "bash", std::to_string(serve->port)};
  SB_CO_TRY(llm::Ran up, co_await llm::RunIn(bench_.api, box, std::move(wait), kHelperMs));
  if (up.exit_code == 0) co_return std::string();
  std::vector<std::string> tail{"tail", "-c", "400", "/tmp/sandbar-serve.log"};
  SB_CO_TRY(llm::Ran said, co_await llm::RunIn(bench_.api, std::move(box), std::move(tail), kHelperMs));
  co_return fmt::format("serve: nothing listens on port {}: {}", serve->port, llm::OneLine(said.out, 300));
}

Task<> TrialJudge::RunVerdict(llm::Box box, const CheckerCheck* check, std::vector<client::TarItem> said,
                              CheckResult* out) {
  SB_CO_TRYV(co_await Put(box, check));
  if (check->serve) {
    std::vector<std::string> copy{"sudo", "-n", "sh", "-c", kServeCopy, "sh", box.cwd};
    SB_CO_TRY(llm::Ran copied, co_await llm::RunIn(bench_.api, box, std::move(copy), kHelperMs));
    if (copied.exit_code != 0) co_return Fail(Code::kUnavailable, "serve: " + llm::OneLine(copied.err, 300));
  }
  // Unreadable for the solution's server, which is another user.
  for (const auto& [name, content] : check->files) said.push_back({name, "", content, 0600});
  SB_CO_TRYV(co_await llm::WriteFiles(bench_.api, box, std::move(said)));
  if (check->serve) {
    SB_CO_TRY(std::string problem, co_await Serve(box, &*check->serve));
    if (!problem.empty()) out->message = problem;
    if (!problem.empty()) co_return Result<>{};
  }
  std::vector<std::string> argv{"sh", "-c", check->command};
  const int64_t timeout_ms = check->timeout_ms.value_or(kCheckerMs);
  SB_CO_TRY(llm::Ran ran, co_await llm::RunIn(bench_.api, std::move(box), std::move(argv), timeout_ms));
  JudgeRan(*check, ran, out);
  co_return Result<>{};
}

Task<> TrialJudge::RunChecker(const CheckerCheck* check, CheckResult* out) {
  if (!odd_.empty()) {
    out->message = "`outputs`: " + llm::OneLine(odd_.front(), 200) + "; only regular files are copied";
    co_return Result<>{};
  }
  std::vector<client::TarItem> said;
  for (const auto& [name, command] : check->runs) {
    llm::Ran ran;
    // The solution's own code runs in a sandbox that gives no verdict: only what it prints leaves it.
    std::function<Task<>(llm::Box)> run = [this, check, &command, &ran](llm::Box box) {
      return RunInPlace(std::move(box), check, command, &ran);
    };
    SB_CO_TRYV(co_await InFreshFork(check, std::move(run)));
    if (ran.exit_code != 0 || ran.truncated) {
      out->message = fmt::format("'{}' of `runs` ", llm::OneLine(command, 80));
      out->message += ran.truncated ? fmt::format("printed more than {} MiB", kMaxRun >> 20)
                                    : fmt::format("ended with {}: {}", ran.exit_code, llm::OneLine(ran.err, 300));
      co_return Result<>{};
    }
    said.push_back({name, "", std::move(ran.out)});
  }
  std::function<Task<>(llm::Box)> judge = [this, check, &said, out](llm::Box box) {
    return RunVerdict(std::move(box), check, std::move(said), out);
  };
  co_return co_await InFreshFork(check, std::move(judge));
}

Task<std::vector<CheckResult>> TrialJudge::Check(const llm::Outcome* outcome) {
  std::vector<CheckResult> results;
  for (const EvalCheck& check : bench_.of->body.checks) {
    CheckResult result = Blank(check);
    if (check.file) {
      SB_CO_TRYV(JudgeText(*check.file, texts_.at(&*check.file), &result));
    } else if (check.checker) {
      SB_CO_TRYV(co_await RunChecker(&*check.checker, &result));
    } else {
      JudgeOutcome(check, *outcome, &result);
    }
    results.push_back(std::move(result));
  }
  co_return results;
}

}  // namespace sandbar::evals
