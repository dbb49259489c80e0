#include "guest/elevated.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace sandbar::guest {
namespace {

// What a loader does not believe when a kernel has told it that the program is another user's.
constexpr std::array<std::string_view, 14> kUnsafe = {
    "LD_",     "GCONV_PATH=", "GETCONF_DIR=", "GLIBC_TUNABLES=",   "HOSTALIASES=", "LOCALDOMAIN=", "LOCPATH=",
    "MALLOC_", "NIS_PATH=",   "NLSPATH=",     "RESOLV_HOST_CONF=", "RES_OPTIONS=", "TMPDIR=",      "TZDIR="};

bool Unsafe(std::string_view variable) {
  return std::ranges::any_of(kUnsafe, [&](std::string_view u) { return variable.starts_with(u); });
}

}  // namespace

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (const auto& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

Fd OpenElevated(const std::string& path) {
  Fd file(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat st{}, root{};
  if (!file || ::fstat(file.get(), &st) != 0 || ::stat("/", &root) != 0) return {};
  // Not of a drive: those are mounted nosuid elsewhere.
  const bool counts = S_ISREG(st.st_mode) && st.st_uid == 0 && (st.st_mode & S_ISUID) != 0 && (st.st_mode & 022) == 0 &&
                      st.st_dev == root.st_dev;
  return counts ? std::move(file) : Fd();
}

int ExecElevated(const Fd& file, uid_t caller, std::vector<std::string> argv, std::vector<std::string> env) {
  argv.insert(argv.begin() + 1, std::string(kCallerArgument) + std::to_string(caller));
  std::erase_if(env, Unsafe);
  if (::seteuid(0) != 0 || ::setresuid(0, 0, 0) != 0) return errno;
  ::syscall(SYS_execveat, file.get(), "", Pointers(argv).data(), Pointers(env).data(), AT_EMPTY_PATH);
  return errno;
}

}  // namespace sandbar::guest
