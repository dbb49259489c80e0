// Random identifiers, hexadecimal text and the wall clock. All randomness comes from getrandom(2). Any thread.
//
//   std::string id = NewId("sbx_");
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sandbar {

// "<prefix><n characters of [0-9A-Za-z]>", e.g. NewId("sbx_") -> "sbx_4fK…"; 24 characters carry 142 bits.
std::string NewId(std::string_view prefix, size_t n = 24);
// Lower-case base36, for host names and labels.
std::string NewLabel(std::string_view prefix, size_t n = 12);
// A readable generated sandbox name such as "amber-delta-7f3k2q".
std::string NewSandboxName();
void FillRandom(void* out, size_t n);
std::string Hex(std::string_view bytes);

// Wall clock in milliseconds since the epoch, as the protocol's timestamps are.
int64_t NowMs();

}  // namespace sandbar
