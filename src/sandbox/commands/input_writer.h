// Writes to the standard input of one command, for one caller at a time. Single loop.
#pragma once

#include <memory>
#include <string>

#include "sandbox/commands/session_commands.h"

namespace sandbar::sandbox {

// What a command that has ended says of its input: nobody reads it.
protocol::StdinState EndedInput(std::string command);

// `commands`: those of the command's session; null when the session has ended. kConflict: the command takes no input,
// or somebody else writes to it.
Result<std::unique_ptr<InputWriter>> OpenInputWriter(std::shared_ptr<SessionCommands> commands, std::string command);

}  // namespace sandbar::sandbox
