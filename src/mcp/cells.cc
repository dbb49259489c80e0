#include "mcp/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/base64.h"
#include "base/ids.h"
#include "mcp/file_text.h"
#include "wire/json_parse.h"

namespace sandbar::mcp {
namespace {

constexpr size_t kMaxLine = 32 << 20;
constexpr size_t kMaxImages = 8;
constexpr size_t kMaxArtifacts = 50;

std::string TextOf(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

int64_t NumberOf(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) return 0;
  if (value->is_int64()) return value->get_int64();
  return value->is_uint64() ? static_cast<int64_t>(std::min<uint64_t>(value->get_uint64(), INT64_MAX)) : 0;
}

bool IsImage(std::string_view text) {
  return !text.empty() && text.size() % 4 == 0 && IsBase64Text(text);
}

// What a shell would have said about how it ended.
int ExitCodeOf(const std::string& status, const json::object& event) {
  if (event.contains("exitCode")) return static_cast<int>(NumberOf(event, "exitCode"));
  if (status == "ok") return 0;
  if (status == "timeout") return 124;
  return status == "error" ? 1 : 137;
}

Task<> ReadAll(Cell* cell, sandbox::CodeStream* stream) {
  while (true) {
    SB_CO_TRY(std::string lines, co_await stream->Next());
    if (lines.empty()) co_return Result<>{};
    std::string_view rest = lines;
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      cell->output.TakeLine(rest.substr(0, end));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    cell->changed.Notify();
  }
}

}  // namespace

// The richest form that a client can show to a model: pictures as such, of the rest the plainest text.
void CellOutput::TakeData(const json::object& data) {
  for (std::string_view type : {"image/png", "image/jpeg"}) {
    const std::string image = TextOf(data, type);
    if (image.empty()) continue;
    const size_t bytes = image.size() / 4 * 3;
    if (!IsImage(image) || images.size() == kMaxImages || image_bytes + bytes > kMaxImage) {
      ++images_left_out;
    } else {
      image_bytes += bytes;
      images.emplace_back(json::object{{"type", "image"}, {"data", image}, {"mimeType", type}});
    }
    return;
  }
  for (std::string_view type : {"text/plain", "text/markdown"}) {
    const std::string text = TextOf(data, type);
    if (text.empty()) continue;
    shown.Add(text.ends_with('\n') ? text : text + "\n");
    return;
  }
  if (const json::value* value = data.if_contains("application/json")) {
    shown.Add(json::serialize(*value) + "\n");
  } else if (!data.empty()) {
    shown.Add(fmt::format("[{}]\n", std::string_view(data.begin()->key()).substr(0, 100)));
  }
}

void CellOutput::TakeEnd(const json::object& event) {
  status = TextOf(event, "status");
  duration_ms = NumberOf(event, "durationMs");
  exit_code = ExitCodeOf(status, event);
}

void CellOutput::TakeLine(std::string_view line) {
  auto value = wire::ParseJson(line, {.bytes = kMaxLine});
  const json::object* event = value ? value->if_object() : nullptr;
  if (event == nullptr) return;
  const std::string type = TextOf(*event, "type");
  if (type == "started") {
    context = TextOf(*event, "context");
    count = NumberOf(*event, "executionCount");
    const json::value* is_fresh = event->if_contains("fresh");
    fresh = is_fresh != nullptr && is_fresh->is_bool() && is_fresh->get_bool();
  } else if (type == "stdout" || type == "stderr") {
    (type == "stdout" ? out : err).Add(TextOf(*event, "text"));
  } else if (type == "display" || type == "result") {
    if (const json::value* data = event->if_contains("data"); data != nullptr && data->is_object())
      TakeData(data->get_object());
  } else if (type == "error") {
    error = TextOf(*event, "traceback");
    if (error.empty()) error = TextOf(*event, "name") + ": " + TextOf(*event, "value");
  } else if (type == "artifact") {
    json::object file{
        {"path", TextOf(*event, "path")}, {"size", NumberOf(*event, "size")}, {"mime", TextOf(*event, "mime")}};
    if (artifacts.size() < kMaxArtifacts) artifacts.push_back(std::move(file));
  } else if (type == "end") {
    TakeEnd(*event);
  }
}

Result<std::shared_ptr<Cell>> Cells::Add(std::string owner, std::unique_ptr<sandbox::CodeStream> stream,
                                         int64_t keep_ms) {
  const int64_t now = NowMs();
  std::erase_if(cells_, [&](const auto& c) { return c.second->ended && now - c.second->ended_at > keep_ms; });
  const auto own = std::count_if(cells_.begin(), cells_.end(), [&](const auto& c) { return c.second->owner == owner; });
  const bool too_many_own = static_cast<size_t>(own) >= kMaxOwn;
  if (too_many_own || cells_.size() >= kMax)
    return Fail(Code::kTooMany, fmt::format("{} runs of code are under way or wait to be read by their handles",
                                            too_many_own ? kMaxOwn : kMax));
  auto cell = std::make_shared<Cell>(tasks_.executor());
  cell->handle = NewId("cell_");
  cell->owner = std::move(owner);
  cell->started_at = now;
  cell->stream = std::move(stream);
  cells_[cell->handle] = cell;
  tasks_.Spawn(Pump(cell));
  return cell;
}

std::shared_ptr<Cell> Cells::Find(const std::string& owner, const std::string& handle) const {
  auto it = cells_.find(handle);
  return it == cells_.end() || it->second->owner != owner ? nullptr : it->second;
}

void Cells::Drop(const std::string& handle) {
  auto it = cells_.find(handle);
  if (it == cells_.end()) return;
  it->second->is_dropped = true;
  it->second->dropped.Notify();
  cells_.erase(it);
}

Task<> Cells::UntilDropped(Cell* cell) {
  while (!cell->is_dropped) {
    SB_CO_TRYV(co_await cell->dropped.Wait());
  }
  co_return Result<>{};
}

Task<> Cells::Pump(std::shared_ptr<Cell> cell) {
  using namespace asio::experimental::awaitable_operators;
  auto first = co_await (ReadAll(cell.get(), cell->stream.get()) || UntilDropped(cell.get()));
  if (first.index() == 0 && !std::get<0>(first)) cell->failure = std::get<0>(first).error();
  cell->stream.reset();
  cell->ended = true;
  cell->ended_at = NowMs();
  cell->changed.Notify();
  co_return Result<>{};
}

}  // namespace sandbar::mcp
