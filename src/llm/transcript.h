// Where a run's events go: a JSONL file, the live view on stderr, and one HTML page at the end. Single loop.
// Events hold what a model and a sandbox said: hostile text. The page escapes everything and loads nothing; lines for
// the terminal have no control characters.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "llm/model.h"

namespace sandbar::llm {

class Transcript {
 public:
  // `file`: events are appended as they happen, one JSON object per line; the file is replaced, and only the caller may
  // read it. Empty: none.
  static Result<Transcript> Open(const std::string& file, bool keep);

  // Adds `t`, the milliseconds since the start.
  void Add(json::object event);
  // For `keep`: all of them, oldest first.
  const std::vector<json::object>& events() const { return events_; }
  // The first write that failed, if any: a transcript with holes must not go unnoticed.
  const std::optional<Error>& failed() const { return failed_; }

 private:
  Fd file_;
  bool keep_ = false;
  int64_t started_ = 0;
  std::vector<json::object> events_;
  std::optional<Error> failed_;
};

// Only the caller may read what is made by these. WriteFile replaces.
Result<> WriteFile(const std::string& path, std::string_view text);
Result<> MakePrivateDirectories(const std::string& path);

std::string TranscriptHtml(const std::vector<json::object>& events);
std::string EscapeHtml(std::string_view text);

// One line for the live view; empty when the event shows nothing. "[  1.2s] …".
std::string ViewLine(const json::object& event, int64_t elapsed_ms);
// At most `width` characters; what is not printable (base/printable.h) is a space.
std::string OneLine(std::string_view text, size_t width);

}  // namespace sandbar::llm
