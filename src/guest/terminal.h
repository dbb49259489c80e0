// A pseudo-terminal for one command. The agent holds the master; the slave becomes the command's descriptors 0, 1 and 2
// and its controlling terminal. Loop thread.
//
// Terminals come from the machine's own devpts, whose directory the agent opened before any guest code ran. No other
// name of the guest's file system is looked up.
//
//   SB_TRY(Terminal t, OpenTerminal(setup.pts, size, uid));
//   child: setsid(), dup2(t.slave, 0), ioctl(0, TIOCSCTTY, 0)
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "protocol/guest_commands.h"

namespace sandbar::guest {

// The directory /dev/pts; empty when it has no ptmx, through which terminals are made.
Fd OpenPtsDir();

struct Terminal {
  Fd master;  // non-blocking
  // The agent keeps it open until the command has ended: a program may close all its descriptors of the terminal and
  // open the terminal again. Without any open slave the master would report an end of file.
  Fd slave;
  // The kernel turns no key into a signal and tells nobody of a new size: gVisor. A signaller does it (below).
  bool lacks_signals = false;
};

// The slave belongs to `owner`, so that the command can open its /dev/pts/N. Its group and mode are those of the devpts
// mount: group tty and 0620 in our machines.
Result<Terminal> OpenTerminal(const Fd& pts, protocol::TerminalSize size, uid_t owner);

// The kernel tells the programs in the foreground (SIGWINCH).
void SetTerminalSize(int fd, protocol::TerminalSize size);

// What a user types to end the input of a program that reads lines. In the middle of a line the first such character
// only hands over the line so far, so there are two. Empty when the terminal has no such character.
std::string EndOfFileCharacters(int fd, bool in_line);
// Whether the program reads every key by itself, not whole lines.
bool ReadsKeys(int fd);

// For terminals that lack signals. The first byte of `input` that is a key for a signal, by the terminal's settings.
struct SignalKey {
  size_t at = std::string_view::npos;
  int signal = 0;
};
SignalKey FindSignalKey(int fd, std::string_view input);
// In the command's process, which leads the terminal's session: starts a process of that session that sends each signal
// number that it reads from `pipe` to the group in the foreground. Only a process of the session can ask for that
// group. It ends at the end of the pipe. The terminal is descriptor 0.
bool StartSignaller(int pipe);

}  // namespace sandbar::guest
