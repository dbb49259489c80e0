// Files out of a sandbox onto this machine: hostile names and hostile bytes, so every step is bounded and nothing is
// followed.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/files.h"
#include "llm/box.h"
#include "wire/ndjson.h"
#include "wire/text.h"
#include "wire/url.h"

namespace sandbar::llm {
namespace {

constexpr size_t kMaxFiles = 10'000;
constexpr uint64_t kMaxBytes = 4ULL << 30;
constexpr int64_t kFindMs = 60'000;
constexpr size_t kMaxListing = 4 << 20;

std::vector<std::string_view> Split(std::string_view path) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    out.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// Does `c` belong to the class "[…]" that begins at glob[*at]? Moves *at behind it. A class without end is a plain '['.
bool InClass(std::string_view glob, size_t* at, char c) {
  const size_t close = glob.find(']', *at + 2);
  if (close == std::string_view::npos) {
    ++*at;
    return c == '[';
  }
  size_t i = *at + 1;
  const bool negated = glob[i] == '!' || glob[i] == '^';
  if (negated) ++i;
  bool found = false;
  for (; i < close; ++i) {
    if (i + 2 < close && glob[i + 1] == '-') {
      found = found || (glob[i] <= c && c <= glob[i + 2]);
      i += 2;
    } else {
      found = found || glob[i] == c;
    }
  }
  *at = close + 1;
  return found != negated;
}

// One path component; backtracks to the last star only, so it is quadratic at worst.
bool PartMatches(std::string_view glob, std::string_view name) {
  if (name.starts_with('.') && !glob.starts_with('.')) return false;
  size_t g = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    size_t after = g + 1;
    bool fits = false;
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = n;
      continue;
    }
    if (g < glob.size() && glob[g] == '[') {
      after = g;
      fits = InClass(glob, &after, name[n]);
    } else if (g < glob.size()) {
      fits = glob[g] == '?' || glob[g] == name[n];
    }
    if (fits) {
      g = after;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

bool PartsMatch(const std::vector<std::string_view>& glob, size_t g, const std::vector<std::string_view>& path,
                size_t p, int depth) {
  if (g == glob.size()) return p == path.size();
  if (glob[g] != "**")
    return p < path.size() && PartMatches(glob[g], path[p]) && PartsMatch(glob, g + 1, path, p + 1, depth);
  // Each ** multiplies the ways; nobody needs many.
  if (depth == 4) return false;
  for (size_t i = p; i <= path.size(); ++i) {
    if (PartsMatch(glob, g + 1, path, i, depth + 1)) return true;
    if (i < path.size() && path[i].starts_with('.')) return false;
  }
  return false;
}

// Opens `path` for writing below the directory `root`, making directories on the way and following no link. What comes
// from a sandbox may be secret: it is the caller's alone.
Result<Fd> OpenBelow(int root, const std::string& path) {
  Fd dir(::fcntl(root, F_DUPFD_CLOEXEC, 3));
  if (!dir) return FailErrno("dup");
  const auto parts = Split(path);
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const std::string name(parts[i]);
    if (::mkdirat(dir.get(), name.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno("mkdir " + path);
    Fd next(::openat(dir.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return FailErrno("open " + path);
    dir = std::move(next);
  }
  const std::string name(parts.back());
  Fd file(::openat(dir.get(), name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!file) return FailErrno(path);
  struct stat st{};
  if (::fstat(file.get(), &st) != 0) return FailErrno(path);
  if (!S_ISREG(st.st_mode)) return Fail(Code::kBadRequest, path + " is not a regular file here");
  return file;
}

Task<uint64_t> Fetch(client::ApiClient* api, Box box, std::string path, int root, uint64_t allowance) {
  json::object body{{"path", path}, {"cwd", box.cwd}};
  std::string target = "/v2/sandboxes/sessions/" + wire::EncodeComponent(box.session) + "/fs/read";
  http::ClientRequest request = api->Request("POST", target, wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  SB_CO_TRY(Fd file, OpenBelow(root, path));
  uint64_t total = 0;
  while (true) {
    SB_CO_TRY(std::string piece, co_await response->Read());
    if (piece.empty()) co_return total;
    total += piece.size();
    if (total > allowance) co_return Fail(Code::kTooLarge, "the files to download are larger than 4 GB together");
    SB_CO_TRYV(WriteAll(file.get(), piece));
  }
}

}  // namespace

bool GlobMatches(std::string_view glob, std::string_view path) {
  if (glob.starts_with("./")) glob.remove_prefix(2);
  return PartsMatch(Split(glob), 0, Split(path), 0, 0);
}

bool IsSafeRelative(std::string_view path) {
  if (path.empty() || path.size() > 4096 || !wire::IsUtf8(path)) return false;
  for (char c : path)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  for (std::string_view part : Split(path))
    if (part.empty() || part == "." || part == "..") return false;
  return true;
}

Task<std::vector<std::string>> Download(client::ApiClient* api, Box box, std::string glob, std::string to) {
  // Patterns outside the working directory would need a place of their own here; there is none.
  if (glob.starts_with('/') || glob.find("..") != std::string::npos)
    co_return Fail(Code::kBadRequest,
                   "--download takes a pattern relative to the working directory, not '" + glob + "'");
  const std::string find = "cd \"$1\" && find . -type f -print0";
  std::vector<std::string> argv{"sh", "-c", find, "sh", box.cwd};
  SB_CO_TRY(Ran ran, co_await RunIn(api, box, std::move(argv), kFindMs, kMaxListing));
  if (ran.exit_code != 0) co_return Fail(Code::kIo, "the sandbox's files could not be listed: " + ran.err);
  if (ran.truncated) co_return Fail(Code::kTooLarge, "the sandbox has too many files to choose from");
  Fd root(::open(to.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) co_return FailErrno(to);
  std::vector<std::string> fetched;
  uint64_t left = kMaxBytes;
  for (size_t at = 0; at < ran.out.size() && fetched.size() < kMaxFiles;) {
    const size_t end = ran.out.find('\0', at);
    if (end == std::string::npos) break;
    std::string path = ran.out.substr(at, end - at);
    at = end + 1;
    if (path.starts_with("./")) path.erase(0, 2);
    if (!IsSafeRelative(path) || !GlobMatches(glob, path)) continue;
    std::string wanted = path;
    SB_CO_TRY(uint64_t size, co_await Fetch(api, box, std::move(wanted), root.get(), left));
    left -= size;
    fetched.push_back(std::move(path));
  }
  co_return fetched;
}

}  // namespace sandbar::llm
