#include "wire/sse.h"

namespace sandbar::wire {

void SseParser::Line(std::vector<SseEvent>* out) {
  std::string_view line = line_;
  if (first_line_ && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  first_line_ = false;
  if (line.empty()) {
    if (has_data_) out->push_back({name_.empty() ? "message" : std::move(name_), std::move(data_)});
    name_.clear();
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event") {
    name_ = value;
  } else if (field == "data") {
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  }
}

Result<std::vector<SseEvent>> SseParser::Feed(std::string_view bytes) {
  std::vector<SseEvent> out;
  while (!bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() + name_.size() > max_event_)
      return Fail(Code::kTooLarge, "an event of the stream is larger than " + std::to_string(max_event_) + " bytes");
    if (end == std::string_view::npos) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    Line(&out);
    line_.clear();
  }
  return out;
}

}  // namespace sandbar::wire
