// What it writes:
//   manifest, check   differs <what> <path>   … end <bytes> <files> <differences> <digest of the manifest>
//   diff              <A|D|M> <type> <size> <size before> <path>   … end <changes> <0|1: there were more>
#include "layer_scanner/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/fd.h"
#include "base/files.h"
#include "layer_scanner/diff.h"
#include "layer_scanner/manifest.h"
#include "layer_scanner/text.h"
#include "os/confine.h"
#include "os/openat.h"

namespace sandbar::layer_scanner {
namespace {

constexpr int kReport = 3, kFirst = 4;
constexpr size_t kMaxStack = 128;
constexpr uint64_t kMaxChanges = 100'000;

Result<std::vector<Fd>> TakeFds(int first, size_t count) {
  std::vector<Fd> fds;
  for (size_t i = 0; i < count; ++i) {
    fds.emplace_back(first + static_cast<int>(i));
    if (::fcntl(fds.back().get(), F_GETFD) < 0) return FailErrno("a directory is missing");
  }
  return fds;
}

Result<size_t> Count(const std::string& text) {
  size_t n = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec != std::errc{} || end != text.data() + text.size() || n > kMaxStack) return Fail(Code::kBadRequest, "a count");
  return n;
}

Result<std::string> Layer(bool check) {
  SB_TRY(auto fds, TakeFds(kFirst, 2));
  SB_TRY(ScanLimits limits, ScanLimits::Of(fds[0].get()));
  SB_TRYV(os::ConfineToReading(fds[0].get()));
  SB_TRY(Report report,
         check ? CheckManifest(fds[0].get(), fds[1].get(), limits) : WriteManifest(fds[0].get(), fds[1].get(), limits));
  std::string out;
  for (const std::string& text : report.first) out += "differs " + text + "\n";
  out += fmt::format("end {} {} {} {}\n", report.bytes, report.files, report.differences, report.digest);
  return out;
}

Result<std::string> Stacks(const std::string& a, const std::string& b) {
  SB_TRY(size_t before, Count(a));
  SB_TRY(size_t after, Count(b));
  SB_TRY(auto left, TakeFds(kFirst, before));
  SB_TRY(auto right, TakeFds(kFirst + static_cast<int>(before), after));
  if (left.empty() || right.empty()) return Fail(Code::kBadRequest, "no layers");
  SB_TRYV(os::ConfineToReading(left.back().get()));
  uint64_t count = 0;
  auto write = [&](const Change& c) -> Result<> {
    if (++count > kMaxChanges) return Fail(Code::kTooMany, "");
    return WriteAll(kReport, fmt::format("{} {} {} {} {}\n", c.kind, c.type, c.size, c.before, Escape(c.path)));
  };
  auto done = Diff(left, right, write);
  const bool more = count > kMaxChanges;
  if (!done && !more) return std::unexpected(std::move(done).error());
  return fmt::format("end {} {}\n", more ? kMaxChanges : count, more ? 1 : 0);
}

Result<std::string> Run(const std::vector<std::string>& args) {
  if (args.size() == 1 && args[0] == "manifest") return Layer(false);
  if (args.size() == 1 && args[0] == "check") return Layer(true);
  if (args.size() == 3 && args[0] == "diff") return Stacks(args[1], args[2]);
  return Fail(Code::kBadRequest, "usage: sandbar-scanner manifest | check | diff A B (run by sandbar-spawner)");
}

// What is merely too much for us, or did not work at this moment, says nothing about the layer.
std::string Word(const Error& error) {
  if (error.code == Code::kTooLarge) return "limit ";
  const bool passing = error.sys_errno == ENOSPC || error.sys_errno == EDQUOT || error.sys_errno == ENOMEM;
  return passing ? "later " : "error ";
}

}  // namespace

int RunScanner(const std::vector<std::string>& args) {
  ::signal(SIGPIPE, SIG_DFL);  // nobody reads any more: nothing left to do
  auto done = Run(args);
  std::string text = done ? *done : Word(done.error()) + Escape(done.error().message) + "\n";
  auto written = WriteAll(::fcntl(kReport, F_GETFD) < 0 ? 2 : kReport, text);
  return done && written ? 0 : 1;
}

}  // namespace sandbar::layer_scanner
