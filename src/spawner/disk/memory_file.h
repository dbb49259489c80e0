// The file with the memory of a machine: a header of one page, then QEMU's migration stream. The header tells which
// machines can go on with it, and has checksums of the stream and of itself. They detect decay, not forgery: only the
// host's root can write where these files lie.
//
//   Checksum sum; sum.Add(piece); …
//   SB_TRY(MemoryHeader header, DecodeMemoryHeader(page));
//   SB_TRYV(CheckNeeds(header.needs, ours));            // kConflict names what differs
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbar::spawner {

inline constexpr size_t kMemoryHeader = 4096;

// Four sums of 64-bit words, each word mixed in by a step that can be undone: a change within one word always shows.
class Checksum {
 public:
  void Add(std::string_view bytes);
  std::string Hex() const;

 private:
  void Word(uint64_t word);

  std::array<uint64_t, 4> lanes_{1, 2, 3, 4};
  std::array<char, 8> part_{};
  uint64_t size_ = 0;
};

// What has to be the same on the machine that goes on with the memory.
struct MemoryNeeds {
  std::string engine;   // its name (base/engine_table.h)
  std::string qemu;     // its version
  std::string cpu;      // the host's model
  std::string kernel;   // sum of the guest kernel
  std::string devices;  // sum of what QEMU was told to have
  uint64_t memory_mib = 0;
  uint32_t vcpus = 0;
};

struct MemoryHeader {
  MemoryNeeds needs;
  uint64_t bytes = 0;  // that follow
  std::string sum;     // of them
};

std::string EncodeMemoryHeader(const MemoryHeader& header);
// kConflict: damaged.
Result<MemoryHeader> DecodeMemoryHeader(std::string_view page);
Result<MemoryHeader> ReadMemoryHeader(int file);
Result<> CheckNeeds(const MemoryNeeds& needs, const MemoryNeeds& have);
// Reads all of it: the bytes behind the header are those that were written. Leaves the position at their start.
Result<> CheckMemory(int file, const MemoryHeader& header);

}  // namespace sandbar::spawner
