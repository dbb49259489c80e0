// Text that a guest, an archive or a server chose, made fit for a person's terminal or log: what a terminal would act
// on, or what would show something else than is there, is spelled out. Everything that the programs say to people
// passes here, except a command's own output. Any thread, no state.
//
//   Printable("a\x1b[2Jb")       ->  a\x1b[2Jb     (escapes, also of line ends and tabs: one line stays one line)
//   PrintableLines("a\n\xff")    ->  a⏎\xff        (line ends and tabs stay)
#pragma once

#include <string>
#include <string_view>

namespace sandbar {

std::string Printable(std::string_view text);
std::string PrintableLines(std::string_view text);

// False: control characters (C0, DEL, C1), and characters without a shape of their own that change how others are
// shown: directions, joiners, tags, separators of lines.
bool IsPrintable(char32_t c);

}  // namespace sandbar
