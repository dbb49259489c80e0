#include "sandbox/code/code_cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "wire/json_parse.h"
#include "wire/ndjson.h"
#include "wire/text.h"

namespace sandbar::sandbox {
namespace {

namespace json = boost::json;

constexpr size_t kMaxLine = 8 << 20, kCheapLine = 64 << 10;
constexpr size_t kMaxName = 256, kMaxValue = 16 << 10, kMaxTraceback = 64 << 10, kMaxPathBytes = 4096;
constexpr size_t kErrEnd = 8 << 10;
constexpr int64_t kMaxCpuMs = 1LL << 40;

struct Suffix {
  std::string_view suffix, mime;
};
constexpr Suffix kMimes[] = {
    {".png", "image/png"},
    {".jpg", "image/jpeg"},
    {".jpeg", "image/jpeg"},
    {".gif", "image/gif"},
    {".webp", "image/webp"},
    {".svg", "image/svg+xml"},
    {".pdf", "application/pdf"},
    {".html", "text/html"},
    {".htm", "text/html"},
    {".md", "text/markdown"},
    {".txt", "text/plain"},
    {".log", "text/plain"},
    {".csv", "text/csv"},
    {".tsv", "text/tab-separated-values"},
    {".json", "application/json"},
    {".jsonl", "application/x-ndjson"},
    {".xml", "application/xml"},
    {".yaml", "application/yaml"},
    {".yml", "application/yaml"},
    {".toml", "application/toml"},
    {".js", "text/javascript"},
    {".mjs", "text/javascript"},
    {".ts", "text/typescript"},
    {".py", "text/x-python"},
    {".sh", "text/x-shellscript"},
    {".css", "text/css"},
    {".zip", "application/zip"},
    {".gz", "application/gzip"},
    {".tar", "application/x-tar"},
    {".mp4", "video/mp4"},
    {".mp3", "audio/mpeg"},
    {".wav", "audio/wav"},
    {".parquet", "application/vnd.apache.parquet"},
    {".xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
    {".db", "application/vnd.sqlite3"},
    {".sqlite", "application/vnd.sqlite3"},
};

// The member as text, cut to `max` bytes at a character; empty when it is not there or something else.
std::string Text(const json::object& o, std::string_view key, size_t max) {
  const auto* v = o.if_contains(key);
  if (v == nullptr || !v->is_string()) return {};
  std::string text(v->get_string());
  if (text.size() <= max) return text;
  size_t cut = max;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  text.resize(cut);
  return text + "…";
}

int64_t Number(const json::object& o, std::string_view key, int64_t max) {
  const auto* v = o.if_contains(key);
  if (v == nullptr || !v->is_number()) return 0;
  boost::system::error_code ec;
  const auto n = v->to_number<double>(ec);
  return ec || !(n > 0) ? 0 : static_cast<int64_t>(std::min(n, static_cast<double>(max)));
}

bool IsMime(std::string_view name) {
  auto allowed = [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\'; };
  return name.size() <= 100 && name.contains('/') && std::ranges::all_of(name, allowed);
}

bool IsSha256(std::string_view text) {
  auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 64 && std::ranges::all_of(text, hex);
}

}  // namespace

std::string_view MimeOf(std::string_view path) {
  const size_t dot = path.find_last_of("./");
  if (dot == std::string_view::npos || path[dot] == '/') return "application/octet-stream";
  const std::string suffix = wire::LowerCase(path.substr(dot));
  const auto* it = std::ranges::find(kMimes, suffix, &Suffix::suffix);
  return it == std::end(kMimes) ? "application/octet-stream" : it->mime;
}

CodeCell::CodeCell(const asio::any_io_executor& ex, std::string context, int64_t count, bool fresh,
                   std::chrono::milliseconds timeout)
    : due(started + timeout), changed(ex), context_(std::move(context)), count_(count) {
  json::object event{{"type", "started"}, {"context", context_}, {"executionCount", count_}, {"fresh", fresh}};
  Emit(event);
}

void CodeCell::Emit(const json::object& event) {
  lines_ += wire::NdjsonLine(event);
  changed.Notify();
}

void CodeCell::EmitText(uint8_t stream, const CappedOutput::Piece& piece) {
  if (piece.text.empty()) return;
  lines_ += stream == 2 ? R"({"type":"stderr","text":)" : R"({"type":"stdout","text":)";
  wire::AppendJsonAscii(lines_, piece.text);
  lines_ += piece.replaced ? ",\"replaced\":true}\n" : "}\n";
  changed.Notify();
}

void CodeCell::Output(uint8_t stream, std::string_view bytes) {
  if (ended_) return;
  if (stream == 2) {
    err_end_ += bytes.substr(bytes.size() - std::min(bytes.size(), kErrEnd));
    if (err_end_.size() > 2 * kErrEnd) err_end_.erase(0, err_end_.size() - kErrEnd);
  }
  EmitText(stream, (stream == 2 ? err_ : out_).Feed(bytes));
}

void CodeCell::Lost(uint64_t bytes) {
  if (!ended_) out_.Lose(bytes);
}

void CodeCell::FlushOutput() {
  for (uint8_t stream : {1, 2}) {
    CappedOutput::Rest rest = (stream == 2 ? err_ : out_).Flush();
    if (rest.dropped > 0) {
      json::object gap{{"type", stream == 2 ? "stderr" : "stdout"},
                       {"text", fmt::format("\n[sandbar: {} bytes of output are missing here]\n", rest.dropped)},
                       {"gap", rest.dropped}};
      Emit(gap);
    }
    EmitText(stream, rest.piece);
  }
}

void CodeCell::DriverLine(std::string_view line) {
  if (ended_) return;
  // What would be dropped anyway is not worth the time of reading it; an end is always short.
  if (line.size() > kCheapLine && line.size() > kMaxDisplayBytes - display_bytes_) {
    ++dropped_displays_;
    return;
  }
  wire::JsonLimits limits{kMaxLine, 32};
  auto parsed = wire::ParseJson(line, limits);
  if (!parsed || !parsed->is_object()) {
    ++bad_lines_;
    display_bytes_ = std::min(kMaxDisplayBytes, display_bytes_ + line.size());
    return;
  }
  json::object& event = parsed->get_object();
  const std::string type = Text(event, "type", 32);
  if (type == "display" || type == "result") return OnDisplay(event, type);
  // Long lines cost the time of reading them, whatever they turn out to say.
  if (line.size() > kCheapLine) display_bytes_ += line.size();
  if (type == "error") return OnError(event);
  if (type == "artifact") return OnArtifact(event);
  if (type == "end") return OnEnd(event);
  if (type == "begun") {
    begun = true;
    return;
  }
  ++bad_lines_;
}

void CodeCell::OnDisplay(json::object& event, std::string_view type) {
  auto* data = event.if_contains("data");
  if (data == nullptr || !data->is_object()) {
    ++bad_lines_;
    return;
  }
  json::object kept;
  for (auto& [mime, value] : data->get_object()) {
    if (IsMime(mime)) kept[mime] = std::move(value);
  }
  json::object out{{"type", type}, {"data", std::move(kept)}};
  const std::string text = wire::NdjsonLine(out);
  if (text.size() > kMaxDisplayBytes - display_bytes_) {
    ++dropped_displays_;
    return;
  }
  display_bytes_ += text.size();
  lines_ += text;
  changed.Notify();
}

void CodeCell::OnError(json::object& event) {
  // Held-back output came before the error; shown once, so that a driver cannot use this to get around the cap.
  if (!std::exchange(flushed_, true)) FlushOutput();
  failed_ = true;
  json::object out{{"type", "error"},
                   {"name", Text(event, "name", kMaxName)},
                   {"value", Text(event, "value", kMaxValue)},
                   {"traceback", Text(event, "traceback", kMaxTraceback)}};
  const std::string text = wire::NdjsonLine(out);
  if (text.size() > kMaxDisplayBytes - display_bytes_) return;
  display_bytes_ += text.size();
  lines_ += text;
  changed.Notify();
}

void CodeCell::OnArtifact(json::object& event) {
  if (artifacts_.size() >= kMaxArtifacts) {
    artifacts_truncated_ = true;
    return;
  }
  const std::string path = Text(event, "path", kMaxPathBytes);
  if (path.empty()) return;
  json::object out{{"path", path}, {"size", Number(event, "size", 1LL << 50)}, {"mime", MimeOf(path)}};
  const std::string digest = Text(event, "sha256", 64);
  if (IsSha256(digest)) {
    out["sha256"] = digest;
  } else {
    out["sha256"] = nullptr;
  }
  artifacts_.push_back(out);
  out["type"] = "artifact";
  Emit(out);
}

void CodeCell::OnEnd(json::object& event) {
  cpu_ms_ = Number(event, "cpuMs", kMaxCpuMs);
  max_rss_ = static_cast<uint64_t>(Number(event, "maxRssBytes", 1LL << 50));
  if (const auto* more = event.if_contains("artifactsTruncated"))
    artifacts_truncated_ = artifacts_truncated_ || (more->is_bool() && more->get_bool());
  if (event.contains("exitCode")) exit_code_ = static_cast<int>(Number(event, "exitCode", 255));
  leaving_ = event.contains("leaving");
  const bool ok = Text(event, "status", 16) == "ok" && !failed_;
  End(ok ? "ok" : "error");
}

void CodeCell::End(std::string_view status, std::string why) {
  if (ended_) return;
  FlushOutput();
  if (!why.empty()) {
    json::object error{{"type", "error"}, {"name", "SandbarError"}, {"value", why}, {"traceback", ""}};
    Emit(error);
  }
  status_ = timed_out ? "timeout" : status;
  using std::chrono::milliseconds;
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - started).count();
  json::object truncated;
  if (out_.dropped() > 0) truncated["stdout"] = json::object{{"dropped", out_.dropped()}};
  if (err_.dropped() > 0) truncated["stderr"] = json::object{{"dropped", err_.dropped()}};
  if (dropped_displays_ > 0) truncated["display"] = json::object{{"dropped", dropped_displays_}};
  if (artifacts_truncated_) truncated["artifacts"] = true;
  if (bad_lines_ > 0) truncated["unreadable"] = bad_lines_;
  json::object end{
      {"type", "end"},      {"status", status_},       {"executionCount", count_},          {"durationMs", took},
      {"cpuMs", cpu_ms_},   {"maxRssBytes", max_rss_}, {"truncated", std::move(truncated)}, {"artifacts", artifacts_},
      {"context", context_}};
  if (exit_code_ >= 0) end["exitCode"] = exit_code_;
  ended_ = true;
  Emit(end);
}

Task<std::string> CodeCell::Next() {
  while (lines_.empty() && !ended_) {
    SB_CO_TRYV(co_await changed.Wait());
  }
  co_return std::exchange(lines_, {});
}

}  // namespace sandbar::sandbox
