// Who a command or a file worker runs as. Own bounded reader of the guest's /etc/group: the agent is static (no NSS),
// and the file belongs to the guest.
//
// ParseGroups is pure. BecomeUser runs in a forked child only, still as root; on failure it sets errno. Nobody in the
// machine can trace the child then, until it executes a program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sandbar::guest {

inline constexpr size_t kMaxGroups = 256;
inline constexpr size_t kMaxGroupFile = 1 << 20;

// Supplementary groups of `user` in group(5) text, with `gid` first. Malformed lines are skipped.
std::vector<uint32_t> ParseGroups(std::string_view text, std::string_view user, uint32_t gid);

// `saved` is the user that it may still become again. With the groups that /etc/group lists, or with these.
bool BecomeUser(uint32_t uid, uint32_t gid, const std::string& user, uint32_t saved);
bool BecomeUser(uint32_t uid, uint32_t gid, const std::vector<uint32_t>& groups, uint32_t saved);

}  // namespace sandbar::guest
