// How the user called this program: hints name it that way, so that a hint can be copied into the same shell.
//
//   SetCalledAs(argv[0]);                          // once, first of all
//   AsCalled("sudo ./sandbar up")                  // "sudo /opt/sandbar/bin/sandbar up"
#pragma once

#include <string>
#include <string_view>

namespace sandbar::cli {

// The launcher's SANDBAR_CALLED wins: it says what the user typed before the launcher found the program.
void SetCalledAs(std::string_view argv0);

// Every "sandbar COMMAND" and "./sandbar COMMAND" in the text, with the program as it was called. Texts about
// something else that has the word in it (a package, a path, a user) stay as they are.
std::string AsCalled(std::string_view text);

}  // namespace sandbar::cli
