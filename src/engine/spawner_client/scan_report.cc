#include "engine/spawner_client/scan_report.h"

#include <charconv>
#include <string_view>

namespace sandbar::engine {
namespace {

std::string_view TakeUntil(std::string_view& text, char end) {
  std::string_view word = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), word.size() + 1));
  return word;
}

bool Number(std::string_view word, uint64_t& out) {
  auto [end, ec] = std::from_chars(word.data(), word.data() + word.size(), out);
  return ec == std::errc{} && end == word.data() + word.size();
}

// Lines but for the last, which must say "end"; `line` refuses what it does not know.
template <class F>
Result<std::string_view> EachLine(std::string_view text, F line) {
  while (!text.empty()) {
    if (text.find('\n') == std::string_view::npos) break;
    std::string_view rest = TakeUntil(text, '\n');
    std::string_view all = rest;
    std::string_view word = TakeUntil(rest, ' ');
    if (word == "error") return Fail(Code::kIo, std::string(rest));
    if (word == "later") return Fail(Code::kUnavailable, std::string(rest));
    if (word == "limit") return Fail(Code::kUnsupported, std::string(rest));
    if (word == "end") return rest;
    if (!line(all)) return Fail(Code::kProtocol, "the layer scanner speaks in riddles");
  }
  return Fail(Code::kUnavailable, "the layer scanner ended before it was done");
}

}  // namespace

Result<LayerReport> ParseLayerReport(const std::string& text) {
  LayerReport report;
  auto differs = [&](std::string_view line) {
    const bool known = TakeUntil(line, ' ') == "differs";
    if (known) report.first.emplace_back(line);
    return known;
  };
  SB_TRY(std::string_view end, EachLine(text, differs));
  const bool numbers = Number(TakeUntil(end, ' '), report.bytes) && Number(TakeUntil(end, ' '), report.files) &&
                       Number(TakeUntil(end, ' '), report.differences);
  if (!numbers || end.size() != 64) return Fail(Code::kProtocol, "the layer scanner's last line is wrong");
  report.digest = end;
  return report;
}

Result<LayerDiff> ParseLayerDiff(const std::string& text) {
  LayerDiff diff;
  auto change = [&](std::string_view line) {
    FileChange c;
    std::string_view kind = TakeUntil(line, ' '), type = TakeUntil(line, ' ');
    if (kind.size() != 1 || type.size() != 1) return false;
    c.kind = kind.front();
    c.type = type.front();
    if (!Number(TakeUntil(line, ' '), c.size) || !Number(TakeUntil(line, ' '), c.before)) return false;
    c.path = line;
    diff.changes.push_back(std::move(c));
    return true;
  };
  SB_TRY(std::string_view end, EachLine(text, change));
  uint64_t count = 0;
  if (!Number(TakeUntil(end, ' '), count) || count != diff.changes.size())
    return Fail(Code::kProtocol, "the layer scanner's last line is wrong");
  diff.more = end == "1";
  return diff;
}

}  // namespace sandbar::engine
