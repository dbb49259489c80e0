// Whole reads and writes on a non-blocking Stream. No deadline of their own: wrap them in WithTimeout. Single loop.
//
//   auto head = co_await ReadExactly(&stream, 2);   // kClosed at the end of the stream
#pragma once

#include <string>

#include "egress/guarded_connect.h"

namespace sandbar::egress {

Task<std::string> ReadExactly(Stream* stream, size_t n);
// What is there, at most `limit` bytes; empty at the end of the stream.
Task<std::string> ReadSome(Stream* stream, size_t limit);
Task<> WriteAll(Stream* stream, std::string bytes);

}  // namespace sandbar::egress
