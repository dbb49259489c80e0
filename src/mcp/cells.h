// A cell is running code. A task of its own reads its output, so a call may return before the code ends, and a later
// call finds the cell by its handle. The output per cell and the number of cells are bounded. A cell that nobody asks
// for is forgotten after a while. Single loop.
//
//   Cells cells(ex);
//   SB_CO_TRY(auto cell, cells.Add(owner, std::move(stream), keep_ms));
//   while (!cell->ended) co_await cell->changed.Wait();
//   cells.Drop(cell->handle);          // also interrupts code that still runs
//   co_await cells.Close();            // before it is destroyed
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "mcp/output.h"
#include "sandbox/code/code.h"

namespace sandbar::mcp {

namespace json = boost::json;

// What a cell has said so far, within bounds.
struct CellOutput {
  HeadTail out, err, shown;  // shown: results and displays as text
  std::string error;         // a traceback
  json::array images;        // content blocks
  size_t image_bytes = 0, images_left_out = 0;
  std::vector<json::object> artifacts;
  std::string context;
  bool fresh = false;
  int64_t count = 0;
  std::string status;  // of the end; empty: it runs
  int64_t duration_ms = 0;
  int exit_code = 0;

  void TakeLine(std::string_view line);

 private:
  void TakeData(const json::object& data);
  void TakeEnd(const json::object& event);
};

struct Cell {
  explicit Cell(const asio::any_io_executor& ex) : changed(ex), dropped(ex) {}
  std::string handle;  // "cell_…"
  std::string owner;   // whose it is: handles of others are unknown
  int64_t started_at = 0, ended_at = 0;
  CellOutput output;
  bool ended = false;
  std::optional<Error> failure;  // the stream broke
  Event changed;

 private:
  friend class Cells;
  std::unique_ptr<sandbox::CodeStream> stream;
  Event dropped;
  bool is_dropped = false;
};

class Cells {
 public:
  static constexpr size_t kMax = 256, kMaxOwn = 32;  // of all, of one owner

  explicit Cells(const asio::any_io_executor& ex) : tasks_(ex) {}
  // kTooMany when so many run or wait to be read. One that has ended is kept for `keep_ms`.
  Result<std::shared_ptr<Cell>> Add(std::string owner, std::unique_ptr<sandbox::CodeStream> stream, int64_t keep_ms);
  std::shared_ptr<Cell> Find(const std::string& owner, const std::string& handle) const;  // null: none
  void Drop(const std::string& handle);
  asio::awaitable<void> Close() { return tasks_.Close(); }

 private:
  Task<> Pump(std::shared_ptr<Cell> cell);
  static Task<> UntilDropped(Cell* cell);

  std::map<std::string, std::shared_ptr<Cell>> cells_;
  TaskGroup tasks_;
};

}  // namespace sandbar::mcp
