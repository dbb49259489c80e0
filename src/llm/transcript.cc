#include "llm/transcript.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/files.h"
#include "base/ids.h"
#include "base/printable.h"
#include "client/api_client.h"
#include "wire/ndjson.h"
#include "wire/text.h"

namespace sandbar::llm {
namespace {

using client::Number;
using client::Object;
using client::Text;

// What models and sandboxes said may be secret: it is the caller's alone, also where the file was there before.
Result<Fd> Create(const std::string& path) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return FailErrno(path);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return FailErrno(path);
  // Not so a terminal or a pipe.
  if (S_ISREG(status.st_mode) && (status.st_mode & 0077) != 0 && ::fchmod(file.get(), 0600) != 0)
    return FailErrno(path);
  return file;
}

// The part of an input that says most: the command, the path, the code.
std::string Gist(const json::object& input) {
  for (const char* key : {"command", "path", "code"})
    if (std::string text = Text(input, key); !text.empty()) return text;
  return input.empty() ? "" : wire::ToAsciiJson(input);
}

std::string Bytes(int64_t n) {
  return n < 10'000 ? fmt::format("{} B", n) : fmt::format("{} kB", n / 1000);
}

std::string ToolLine(const json::object& event) {
  std::string what = event.contains("exitCode") ? fmt::format("exit code {}", Number(event, "exitCode")) : "done";
  const json::value* failed = event.if_contains("isError");
  if (failed != nullptr && failed->is_bool() && failed->as_bool()) what = "tool error";
  return fmt::format("    → {} · {:.1f} s · {}", what, static_cast<double>(Number(event, "ms")) / 1000,
                     Bytes(Number(event, "bytes")));
}

std::string ReplyLine(const json::object& event) {
  const json::object& usage = Object(event, "usage");
  std::string line = fmt::format("step {} · {}+{} tokens · {:.1f} s", Number(event, "step"), Number(usage, "input"),
                                 Number(usage, "output"), static_cast<double>(Number(event, "ms")) / 1000);
  const std::string text = OneLine(Text(event, "text"), 90);
  return text.empty() ? line : line + " · " + text;
}

}  // namespace

std::string OneLine(std::string_view text, size_t width) {
  std::string out;
  size_t shown = 0;
  while (!text.empty()) {
    const wire::Utf8Step step = wire::DecodeUtf8(text);
    const size_t length = step.length == 0 ? text.size() : step.length;
    if (shown++ == width) return out + "…";
    const bool blank = !step.valid || !IsPrintable(step.code_point);
    if (blank) {
      out += ' ';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

std::string ViewLine(const json::object& event, int64_t elapsed_ms) {
  const std::string type = Text(event, "type");
  std::string line;
  if (type == "start") {
    line = fmt::format("{} · {}", OneLine(Text(event, "model"), 60), OneLine(Text(event, "sandbox"), 120));
  } else if (type == "retry") {
    line = fmt::format("step {} · again in {:.1f} s: {}", Number(event, "step"),
                       static_cast<double>(Number(event, "waitMs")) / 1000, OneLine(Text(event, "reason"), 160));
  } else if (type == "reply") {
    line = ReplyLine(event);
  } else if (type == "call") {
    line = fmt::format("    {} {}", OneLine(Text(event, "name"), 40), OneLine(Gist(Object(event, "input")), 100));
  } else if (type == "tool") {
    line = ToolLine(event);
  } else if (type == "note") {
    line = OneLine(Text(event, "text"), 200);
  } else {
    return {};
  }
  return fmt::format("[{:6.1f}s] {}", static_cast<double>(elapsed_ms) / 1000, line);
}

Result<Transcript> Transcript::Open(const std::string& file, bool keep) {
  Transcript out;
  out.keep_ = keep;
  out.started_ = NowMs();
  if (!file.empty()) {
    SB_TRY(out.file_, Create(file));
  }
  return out;
}

void Transcript::Add(json::object event) {
  event["t"] = NowMs() - started_;
  if (file_ && !failed_)
    if (auto written = WriteAll(file_.get(), wire::NdjsonLine(event)); !written) failed_ = written.error();
  if (keep_) events_.push_back(std::move(event));
}

Result<> MakePrivateDirectories(const std::string& path) {
  std::filesystem::path made;
  for (const auto& part : std::filesystem::path(path)) {
    made /= part;
    if (::mkdir(made.c_str(), 0700) == 0 || errno == EEXIST) continue;
    const int err = errno;
    // A read-only or foreign directory may be on the way, as long as it is there.
    std::error_code ec;
    if (!std::filesystem::is_directory(made, ec)) return FailErrno("make " + made.string(), err);
  }
  return {};
}

Result<> WriteFile(const std::string& path, std::string_view text) {
  SB_TRY(Fd file, Create(path));
  auto written = WriteAll(file.get(), text);
  if (!written) return std::unexpected(std::move(written).error().Context(path));
  return {};
}

}  // namespace sandbar::llm
