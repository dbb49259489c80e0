// sandbar-elevate SOCKET ARGV…: the agent's program as the other side of elevations.h. A sudo that was started without
// root becomes this (preload.c); it stays in the caller's process group, hands over what sudo needs and its signals,
// and ends as sudo ended.
#pragma once

#include <string_view>

namespace sandbar::guest {

inline constexpr std::string_view kElevateWord = "sandbar-elevate";

// Of main; does not return when sudo ended by a signal.
int RunElevateClient(int argc, char** argv, char** env);

}  // namespace sandbar::guest
