#include "guest/identity.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "base/fd.h"

namespace sandbar::guest {
namespace {

std::string_view Cut(std::string_view& rest, char at) {
  size_t n = std::min(rest.find(at), rest.size());
  auto part = rest.substr(0, n);
  rest.remove_prefix(std::min(n + 1, rest.size()));
  return part;
}

bool Lists(std::string_view members, std::string_view user) {
  while (!members.empty()) {
    if (Cut(members, ',') == user) return true;
  }
  return false;
}

// Whatever the guest put there: a FIFO or a device must neither block nor matter.
std::string ReadGroupFile() {
  Fd fd(::open("/etc/group", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat st{};
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return {};
  std::string text;
  std::array<char, 16384> buffer{};
  while (text.size() < kMaxGroupFile) {
    ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  return text;
}

}  // namespace

std::vector<uint32_t> ParseGroups(std::string_view text, std::string_view user, uint32_t gid) {
  std::vector<uint32_t> groups{gid};
  while (!text.empty() && groups.size() < kMaxGroups) {
    auto line = Cut(text, '\n');
    if (std::count(line.begin(), line.end(), ':') != 3) continue;
    Cut(line, ':');
    Cut(line, ':');
    auto number = Cut(line, ':');
    uint32_t id = 0;
    auto [end, ec] = std::from_chars(number.data(), number.data() + number.size(), id);
    // (gid_t)-1 means "no change" to the kernel, never a group.
    if (ec != std::errc() || end != number.data() + number.size() || id == UINT32_MAX) continue;
    if (user.empty() || !Lists(line, user)) continue;
    if (std::find(groups.begin(), groups.end(), id) == groups.end()) groups.push_back(id);
  }
  return groups;
}

bool BecomeUser(uint32_t uid, uint32_t gid, const std::string& user, uint32_t saved) {
  return BecomeUser(uid, gid, ParseGroups(ReadGroupFile(), user, gid), saved);
}

bool BecomeUser(uint32_t uid, uint32_t gid, const std::vector<uint32_t>& groups, uint32_t saved) {
  if (uid == UINT32_MAX || gid == UINT32_MAX) {
    errno = EINVAL;
    return false;
  }
  if (::setgroups(groups.size(), groups.data()) != 0) {
    // A group that has no mapping in this user namespace spoils the whole list; the user keeps at least its own.
    if (errno != EINVAL || ::setgroups(1, &gid) != 0) return false;
  }
  // After a change of ids the host's fs.suid_dumpable decides who may look into this memory, a copy of the agent's.
  return ::setresgid(gid, gid, gid) == 0 && ::setresuid(uid, uid, saved) == 0 && ::prctl(PR_SET_DUMPABLE, 0) == 0;
}

}  // namespace sandbar::guest
