// run_code: programs in small pieces ("cells") whose variables survive from one call to the next. The requests and
// answers of the role CodeContexts; see docs/run-code.md. Plain values, single loop.
//
// A context is one interpreter process in the machine that runs our driver (drivers/). It lives with the session: a
// stop, a crash of the interpreter or a restart of the server loses it, and the next cell then runs in a fresh one and
// says so.
#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "async/task.h"

namespace sandbar::sandbox {

enum class CodeLanguage { kPython, kJavascript, kTypescript, kBash };
BOOST_DESCRIBE_ENUM(CodeLanguage, kPython, kJavascript, kTypescript, kBash)
std::string_view CodeLanguageName(CodeLanguage language);  // as in requests; also the id of its default context

inline constexpr size_t kMaxCodeBytes = 1 << 20;
inline constexpr size_t kMaxContexts = 16;  // per sandbox
inline constexpr int64_t kDefaultCodeTimeoutMs = 120000;

struct CodeSpec {
  std::optional<CodeLanguage> language;  // may be left out when the context says it
  std::string code;
  std::optional<std::string> context;  // default: the language's own
  std::optional<int64_t> timeout_ms;
  std::map<std::string, std::string> env;  // for this cell
  std::optional<std::string> cwd;          // for this cell
};

struct CodeContextSpec {
  CodeLanguage language = CodeLanguage::kPython;
  std::optional<std::string> cwd;
  std::map<std::string, std::string> env;
};

struct CodeContextInfo {
  std::string id;
  CodeLanguage language = CodeLanguage::kPython;
  std::string_view state = "cold";  // cold: no interpreter yet (or none any more); idle; running
  int64_t execution_count = 0;
  int64_t created_at = 0, last_used_at = 0;
};

// Interrupt works like Ctrl-C: variables stay, and an idle context is left alone. Restart and remove end the
// interpreter.
enum class ContextChange { kInterrupt, kRestart, kRemove };

// The output of a cell, as NDJSON. Destroying the stream before its end interrupts the cell.
class CodeStream {
 public:
  virtual ~CodeStream() = default;
  // One line or several; empty: the end, right after the line of type "end".
  virtual Task<std::string> Next() = 0;
};

}  // namespace sandbar::sandbox
