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
// Which option of NODE_OPTIONS is ours: the next call replaces that one and no other.
constexpr std::string_view kOurOption = "# In NODE_OPTIONS, `sandbar env --write` has added ";
constexpr std::string_view kOptions = "NODE_OPTIONS";

// The name that a line of a .env file sets; empty for comments and the rest.
std::string_view NameOf(std::string_view line) {
  line = wire::Trim(line);
  if (line.starts_with("export ")) line = wire::Trim(line.substr(7));
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos || line.starts_with('#')) return {};
  return wire::Trim(line.substr(0, equals));
}

// The value that a line of a .env file sets, without its quotes or the comment behind it.
std::string_view ValueOf(std::string_view line) {
  line = wire::Trim(line.substr(std::min(line.find('=') + 1, line.size())));
  if (line.starts_with('"') || line.starts_with('\'') || line.starts_with('`')) {
    const size_t end = line.find(line.front(), 1);
    return line.substr(1, std::min(end, line.size()) - 1);
  }
  return wire::Trim(line.substr(0, line.find(" #")));
}

// The options of NODE_OPTIONS: separated by blanks that are not between double quotes, as Node.js reads them.
std::vector<std::string> SplitOptions(std::string_view text) {
  std::vector<std::string> options(1);
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == ' ' || c == '\t')) {
      options.emplace_back();
    } else {
      options.back() += c;
    }
  }
  std::erase(options, "");
  return options;
}

// A preload as files of earlier versions have it, without the line that says which option is ours.
bool LooksLikePreload(std::string_view option) {
  return option.starts_with("--import=") && option.contains("file://") && option.contains("/register") &&
         (option.ends_with(".mjs") || option.ends_with(".mjs\""));
}

// What an earlier text of the file says about NODE_OPTIONS.
struct OldOptions {
  std::vector<std::string> options;  // of the last line that sets them: that one is in force
  std::string ours;                  // the option that we added
  bool written_before = false;       // by any version of `sandbar env --write`
  bool unreadable = false;           // that line has escapes or no closing quote: programs read it differently

  void Read(std::string_view line) {
    if (line.starts_with(kHeading)) written_before = true;
    if (line.starts_with(kOurOption)) ours = wire::Trim(line.substr(kOurOption.size()));
    if (NameOf(line) != kOptions) return;
    options = SplitOptions(ValueOf(line));
    const std::string_view text = wire::Trim(line.substr(line.find('=') + 1));
    const bool quoted = text.starts_with('"') || text.starts_with('\'') || text.starts_with('`');
    unreadable = quoted && (text.contains('\\') || text.find(text.front(), 1) == std::string_view::npos);
  }
  // The user's own options with ours behind them.
  std::string With(const std::string& added) const {
    std::string out;
    for (const std::string& option : options) {
      const bool old = ours.empty() ? written_before && LooksLikePreload(option) : option == ours;
      if (!old && option != added) out += option + " ";
    }
    return out + added;
  }
};

// Between single quotes every reader of such files takes the text as it is.
Result<std::string> EnvLine(const std::string& name, const std::string& value) {
  if (value.find_first_of("'\n\r") != std::string::npos)
    return Fail(Code::kBadRequest, name + " holds a single quote or a line break, which a .env file cannot");
  return name + "='" + value + "'\n";
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
  OldOptions old;
  while (!before.empty()) {
    const size_t end = std::min(before.find('\n'), before.size());
    const std::string_view line = before.substr(0, end);
    const std::string_view name = NameOf(line);
    const bool ours = line.starts_with(kHeading) || line.starts_with(kOurOption) ||
                      std::ranges::any_of(values, [&](const auto& value) { return value.first == name; });
    old.Read(line);
    if (!ours) out += std::string(line) + "\n";
    before.remove_prefix(std::min(end + 1, before.size()));
  }
  if (old.unreadable)
    return Fail(Code::kBadRequest,
                "NODE_OPTIONS in this file has a backslash or no closing quote, which programs read differently; write "
                "it without, or remove the line and set the options elsewhere");
  out += std::string(kHeading) + "; a token of your server's is among them.\n";
  for (const auto& [name, value] : values) {
    const bool options = name == kOptions;
    if (options) out += std::string(kOurOption) + value + "\n";
    SB_TRY(std::string line, EnvLine(name, options ? old.With(value) : value));
    out += line;
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
