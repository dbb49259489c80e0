// NDJSON as the protocol's clients need it: pure ASCII lines (a client that decodes every network chunk on its own
// cannot split a character that way), and command output turned into valid UTF-8 before. No I/O, any thread.
//
//   Utf8Stream decode;                                    // one per output stream of a command
//   std::string text = decode.Feed(bytes_from_the_guest);
//   std::string line;
//   if (!text.empty()) AppendOutputLine(line, "stdout", text);     // {"stream":"stdout","data":"caf\u00e9"}\n
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

namespace sandbar::wire {

// Appends `utf8` as a quoted JSON string of ASCII characters; invalid bytes become \ufffd.
void AppendJsonAscii(std::string& out, std::string_view utf8);

// Any value, compact, ASCII only. Numbers that JSON cannot express become null.
std::string ToAsciiJson(const boost::json::value& value);
std::string ToAsciiJson(const boost::json::object& value);

// ToAsciiJson(value) + "\n".
std::string NdjsonLine(const boost::json::value& value);
// {"stream":"<stream>","data":"<utf8>"}\n without building a value.
void AppendOutputLine(std::string& out, std::string_view stream, std::string_view utf8);
// {"stream":"error","data":{"code":…,"message":…}}\n, which ends a stream.
std::string ErrorLine(std::string_view code, std::string_view message);

// Bytes in pieces of any size -> valid UTF-8, never with a part of a character at either end. Each invalid sequence
// (its longest valid prefix) becomes one U+FFFD.
class Utf8Stream {
 public:
  std::string Feed(std::string_view bytes);
  // At the end of the stream: U+FFFD when it stopped inside a character, else empty.
  std::string Flush();

 private:
  std::string pending_;  // 0 to 3 bytes
};

}  // namespace sandbar::wire
