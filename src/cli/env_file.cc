#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/ids.h"
#include "cli/env.h"
#include "cli/output.h"
#include "wire/text.h"

namespace sandbar::cli {
namespace {

constexpr size_t kMaxFile = 1 << 20;
constexpr std::string_view kHeading = "# Set by `sandbar env --write`";

// The name that a line of a .env file sets; empty for comments and the rest.
std::string_view NameOf(std::string_view line) {
  line = wire::Trim(line);
  if (line.starts_with("export ")) line = wire::Trim(line.substr(7));
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos || line.starts_with('#')) return {};
  return wire::Trim(line.substr(0, equals));
}

Result<std::string> ReadOld(int directory, const std::string& name, struct stat* st) {
  Fd file(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT) return std::string();
  if (!file && errno == ELOOP)
    return FailWithFix(Code::kForbidden, name + " is a link, and a token is not written through one",
                       "sandbar env --write with the path of the file itself");
  if (!file) return FailErrno("cannot read " + name);
  if (::fstat(file.get(), st) != 0) return FailErrno("stat of " + name);
  if (!S_ISREG(st->st_mode)) return Fail(Code::kBadRequest, name + " is no file");
  if (static_cast<uint64_t>(st->st_size) > kMaxFile)
    return Fail(Code::kTooLarge, name + " is too large for a .env file");
  std::string text(static_cast<size_t>(st->st_size) + 1, '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("cannot read " + name);
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  if (have == text.size()) return Fail(Code::kConflict, name + " grows while it is read");
  text.resize(have);
  return text;
}

Result<> Replace(int directory, const std::string& name, const std::string& text, const struct stat& owner) {
  const std::string temporary = name + ".sandbar-" + NewId("", 8);
  Fd file(::openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return FailErrno("cannot write beside " + name);
  auto written = WriteAll(file.get(), text);
  if (written && ::fchmod(file.get(), 0600) != 0) written = FailErrno("mode of " + name);
  if (written && ::geteuid() == 0 && ::fchown(file.get(), owner.st_uid, owner.st_gid) != 0)
    written = FailErrno("owner of " + name);
  if (written && ::fsync(file.get()) != 0) written = FailErrno("cannot write " + name);
  if (written && ::renameat(directory, temporary.c_str(), directory, name.c_str()) != 0)
    written = FailErrno("cannot replace " + name);
  if (!written) ::unlinkat(directory, temporary.c_str(), 0);
  return written;
}

}  // namespace

Result<std::string> MergeEnvFile(std::string_view before, const wire::Variables& values) {
  std::string out;
  while (!before.empty()) {
    const size_t end = std::min(before.find('\n'), before.size());
    const std::string_view line = before.substr(0, end);
    const std::string_view name = NameOf(line);
    const bool ours = line.starts_with(kHeading) ||
                      std::ranges::any_of(values, [&](const auto& value) { return value.first == name; });
    if (!ours) out += std::string(line) + "\n";
    before.remove_prefix(std::min(end + 1, before.size()));
  }
  out += std::string(kHeading) + "; a token of your server's is among them.\n";
  for (const auto& [name, value] : values) {
    // Between single quotes every reader of such files takes the text as it is.
    if (value.find_first_of("'\n\r") != std::string::npos)
      return Fail(Code::kBadRequest, name + " holds a quote or a line break, which a .env file cannot");
    out += name + "='" + value + "'\n";
  }
  return out;
}

Result<> WriteEnvFile(const std::string& path, const wire::Variables& values) {
  const std::filesystem::path whole(path);
  const std::string name = whole.filename().string();
  if (name.empty() || name == "." || name == "..") return Fail(Code::kBadRequest, "'" + path + "' names no file");
  const std::string parent = whole.has_parent_path() ? whole.parent_path().string() : ".";
  Fd directory(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return FailErrno("cannot open the directory " + parent);
  struct stat owner{};
  SB_TRY(std::string before, ReadOld(directory.get(), name, &owner));
  if (owner.st_nlink == 0 && ::fstat(directory.get(), &owner) != 0) return FailErrno("stat of " + parent);
  SB_TRY(std::string after, MergeEnvFile(before, values));
  return Replace(directory.get(), name, after, owner);
}

}  // namespace sandbar::cli
