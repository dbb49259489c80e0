// Reading and writing tar archives: bytes <-> entries, no fds, no clock. Strict on purpose: the bytes come from
// anybody.
//
// Reader: ustar, pax ('x', global 'g' is skipped) and GNU long names ('L', 'K'); regular files and directories,
// symbolic links for a caller that takes them (the text of a link is not checked: the caller must never write through
// one). Hard links, devices, FIFOs, sparse and multi-volume entries are refused, naming the entry, or given as kOther
// to a caller that wants to name them itself; refused are absolute names, "..", NUL and over-long names. Push-style:
// Feed() bytes as they come, the sink is called in order; the first error is final.
//
//   TarReader reader(&sink);
//   while (more) SB_TRYV(reader.Feed(bytes));
//   SB_TRYV(reader.Finish());                      // fails on a truncated archive
//
// Writer: TarHeader(entry) + contents + TarPadding(size) per file, TarEnd() last. Any thread, one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbar::wire {

inline constexpr size_t kTarBlock = 512;
inline constexpr size_t kMaxTarName = 4095;
inline constexpr size_t kMaxTarExtension = 64 << 10;  // a pax or long-name record
inline constexpr uint64_t kMaxTarFile = 1ULL << 44;

struct TarEntry {
  std::string name;  // relative, no "." or ".." parts, no trailing slash; "" only for the top directory itself
  bool directory = false;
  uint32_t mode = 0644;                                              // permission bits only: 0777 at most
  uint64_t size = 0;                                                 // of a file
  enum class Kind { kPlain, kSymlink, kOther } kind = Kind::kPlain;  // kPlain: a file or a directory
  std::string target;                                                // of a symbolic link
  int64_t mtime = 0;                                                 // seconds
  bool mtime_given = false;                                          // by a pax record: the writer means it
};

// What a reader takes besides files and directories.
struct TarTakes {
  bool symlinks = false;
  bool others = false;  // as kOther without contents, instead of an error
};

class TarSink {
 public:
  virtual ~TarSink() = default;
  virtual Result<> OnEntry(const TarEntry& entry) = 0;
  virtual Result<> OnData(std::string_view bytes) = 0;  // of the file begun last
  virtual Result<> OnEntryEnd() = 0;                    // once per OnEntry
};

class TarReader {
 public:
  explicit TarReader(TarSink* sink, TarTakes takes = {})
      : sink_(sink), takes_(takes) {}  // the sink outlives the reader
  Result<> Feed(std::string_view bytes);
  Result<> Finish();

 private:
  enum class State { kHeader, kExtension, kFile, kPadding, kEnd };
  Result<> OnBlock();
  Result<> OnHeader();
  Result<> BeginExtension(char type, uint64_t size);
  Result<> EndExtension();
  Result<> ParsePax();
  Result<> TakeRecord(std::string_view key, std::string_view value);
  Result<> BeginEntry(char type, uint64_t size);
  Result<> TakeTime(TarEntry& entry);
  void Pad(uint64_t size, State then);

  TarSink* sink_;
  TarTakes takes_;
  State state_ = State::kHeader;
  State after_padding_ = State::kHeader;
  std::array<char, kTarBlock> block_{};
  size_t filled_ = 0;
  uint64_t left_ = 0;  // of the body or the padding being read
  uint64_t body_size_ = 0;
  char extension_type_ = 0;
  std::string extension_;
  // From extension records, for the next entry only.
  std::string long_name_, long_target_;
  bool has_size_ = false, has_mtime_ = false;
  uint64_t pax_size_ = 0;
  int64_t pax_mtime_ = 0;
};

// Header blocks of an entry; adds a pax record for a long or non-ASCII name or target, a huge size, a given time.
std::string TarHeader(const TarEntry& entry);
std::string TarPadding(uint64_t size);
std::string TarEnd();

}  // namespace sandbar::wire
