// A command's output on disk, and readers of it.
//
// <dir>/<20-digit offset of the first byte>: segments of records [u8 stream][u32 length][bytes]; stream 0 is a hole
// (its bytes are a u64 count). Appended by plain write(), so a killed daemon loses nothing. The first and the last few
// segments are kept, those between are deleted as new ones come. Offsets are the agent's: counted over both streams.
//
// Readers keep no data in memory: they read the files. A pinned reader limits what may be acknowledged to the agent, so
// it gets every byte and a slow one slows the command; others jump over deleted segments and are told how much is
// missing. Single loop (Scan may run anywhere). Owned jointly (shared_ptr) by the running command and by each reader.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "async/task.h"
#include "base/fd.h"
#include "sandbox/commands/commands.h"
#include "sandbox/core.h"

namespace sandbar::sandbox {

class CommandLog : public std::enable_shared_from_this<CommandLog> {
 public:
  // What is on disk.
  struct State {
    std::vector<uint64_t> segments;  // offsets of their first bytes, ascending
    uint64_t tail_size = 0;          // bytes in the last segment's file
    uint64_t end = 0;                // offset after the last byte
  };
  // Lists the segments and finds the end; cuts a torn last record off. Blocks.
  static Result<State> Scan(const std::string& dir);
  // Leaves nothing of a finished command's output but how much it was; returns the bytes that this takes. Blocks.
  static Result<uint64_t> Drop(const std::string& dir);

  CommandLog(Core* core, std::string dir, State state);
  CommandLog(const CommandLog&) = delete;
  CommandLog& operator=(const CommandLog&) = delete;
  ~CommandLog();

  // It counts for this session, and is not dropped while the command runs.
  void Account(std::string session, std::string command);
  // Bytes at `offset`: what is stored already is skipped, what is missing before it becomes a hole.
  void Append(uint64_t offset, uint8_t stream, std::string_view bytes);
  void Hole(uint64_t offset, uint64_t bytes);
  // A line of the server's own, after everything the command wrote.
  void Note(std::string_view line);
  // No more bytes: readers end.
  void Finish();

  // Offset up to which the agent's bytes were received; what may be acknowledged is held back by pinned readers.
  uint64_t received() const { return end_ + lost_; }
  uint64_t AckLimit() const;
  // Called when AckLimit may have grown because of a reader.
  void OnProgress(std::function<void()> f) { on_progress_ = std::move(f); }
  // Pinned readers become ordinary ones: a stop must not wait for a client that does not read.
  void ReleasePins();
  // Of a terminal only the last part is of use.
  void KeepTailOnly() { tail_only_ = true; }
  // kBadRequest: `from` lies behind the end.
  Result<std::unique_ptr<LogReader>> NewReader(ReadFrom from);

 private:
  friend class SegmentReader;
  void Write(uint8_t stream, std::string_view bytes);
  bool WriteRecord(uint8_t stream, std::string_view bytes);
  bool Roll();
  bool FlushLost();
  void Trim();   // deletes what need not be kept
  void Moved();  // a pinned reader advanced or went
  // Caps may take the output from here on: the command has ended, and nobody is owed every byte.
  void LetGo();

  Core* core_;
  std::string dir_;
  std::string session_, command_;  // empty: it is not counted
  std::vector<uint64_t> segments_;
  uint64_t tail_size_ = 0;
  uint64_t end_ = 0;
  uint64_t lost_ = 0;  // received but not written (disk full): becomes a hole at the next write
  bool held_ = false;  // caps leave the output alone
  bool finished_ = false;
  bool tail_only_ = false;
  Fd tail_;
  Event changed_;
  std::set<const uint64_t*> pins_;  // positions of pinned readers
  std::function<void()> on_progress_;
};

}  // namespace sandbar::sandbox
