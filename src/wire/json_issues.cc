#include "wire/json_issues.h"

namespace sandbar::wire {

std::string JsonIssues::Quoted(std::string_view text) {
  std::string out = "`";
  if (text.size() > kMaxQuoted) {
    out.append(text.substr(0, kMaxQuoted)).append("…");
  } else {
    out.append(text);
  }
  return out + "`";
}

void JsonIssues::Add(std::string_view key, std::string_view problem) {
  if (count_++ >= kMaxListed) return;
  std::string where = path_;
  if (!key.empty()) {
    if (!where.empty() && !key.starts_with('[')) where.push_back('.');
    where.append(key);
  }
  if (!message_.empty()) message_.append("; ");
  if (!where.empty()) message_.append(Quoted(where)).append(": ");
  message_.append(problem);
}

void JsonIssues::AddSize(std::string_view key, size_t low, size_t high, bool text) {
  const std::string_view unit = text ? " characters" : " items";
  if (low == 0) return Add(key, "must have at most " + std::to_string(high) + std::string(unit));
  Add(key, "must have " + std::to_string(low) + " to " + std::to_string(high) + std::string(unit));
}

Error JsonIssues::ToError() const {
  std::string message = "Invalid request: " + message_;
  if (count_ > kMaxListed) message += "; and " + std::to_string(count_ - kMaxListed) + " more";
  return Error{Code::kBadRequest, std::move(message)};
}

}  // namespace sandbar::wire
