// One run of a piece of code. Turns lines of its driver (hostile: the driver runs in the machine) and output of the
// program into bounded events, and holds them until they are read. Shared by its context and its reader, either of
// which may go first. Single loop.
//
//   cell->Output(1, bytes); cell->DriverLine(json);       // as they come from the machine
//   cell->End("ok");                                      // or cell->ended() after the driver's own end
//   auto lines = co_await cell->Next();                   // the reader
#pragma once

#include <boost/json.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "async/task.h"
#include "sandbox/code/code_output.h"

namespace sandbar::sandbox {

class CodeCell {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMaxDisplayBytes = 16 << 20;  // of rich results together
  static constexpr size_t kMaxArtifacts = 200;
  // How far the cell has been pushed to end.
  enum class Push { kNone, kInterrupted, kKilled };

  CodeCell(const asio::any_io_executor& ex, std::string context, int64_t count, bool fresh,
           std::chrono::milliseconds timeout);

  void Output(uint8_t stream, std::string_view bytes);
  void Lost(uint64_t bytes);  // output that did not get here
  // A line of the driver. Lines that are not understood are dropped and counted.
  void DriverLine(std::string_view line);
  // Ends the cell on behalf of the server; `why` becomes an error event.
  void End(std::string_view status, std::string why = {});
  void UseMeasured(int64_t cpu_ms, uint64_t max_rss) {
    cpu_ms_ = cpu_ms;
    max_rss_ = max_rss;
  }

  bool ended() const { return ended_; }
  const std::string& status() const { return status_; }
  int exit_code() const { return exit_code_; }  // of a shell's cell; -1: none
  bool leaving() const { return leaving_; }     // the interpreter said that it ends with this cell
  // V8 ends its process by itself when the heap is full, and says so.
  bool SaysHeapIsFull() const { return err_end_.contains("heap out of memory"); }
  Task<std::string> Next();

  // For the task that ends cells in time: `due` is when it pushes next.
  Push push = Push::kNone;
  bool begun = false;  // an interrupt reaches the program, not the driver that still prepares it
  bool timed_out = false;
  Clock::time_point started = Clock::now();
  Clock::time_point due;
  uint64_t cpu_before_ns = 0;  // the machine's, when the cell began
  Event changed;

 private:
  void Emit(const boost::json::object& event);
  void EmitText(uint8_t stream, const CappedOutput::Piece& piece);
  void FlushOutput();
  void OnDisplay(boost::json::object& event, std::string_view type);
  void OnError(boost::json::object& event);
  void OnArtifact(boost::json::object& event);
  void OnEnd(boost::json::object& event);

  std::string context_;
  int64_t count_;
  CappedOutput out_, err_;
  std::string err_end_;  // the last few KiB of stderr
  std::string lines_;
  size_t display_bytes_ = 0, dropped_displays_ = 0, bad_lines_ = 0;
  boost::json::array artifacts_;
  bool artifacts_truncated_ = false;
  bool flushed_ = false, failed_ = false, ended_ = false, leaving_ = false;
  std::string status_;
  int exit_code_ = -1;
  int64_t cpu_ms_ = 0;
  uint64_t max_rss_ = 0;
};

// "image/png" for "plot.png"; "application/octet-stream" when the name says nothing.
std::string_view MimeOf(std::string_view path);

}  // namespace sandbar::sandbox
