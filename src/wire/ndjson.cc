#include "wire/ndjson.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cmath>

#include "wire/text.h"

namespace sandbar::wire {

namespace json = boost::json;

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

bool IsPlain(char c) {
  return static_cast<signed char>(c) >= 0x20 && c != 0x7F && c != '"' && c != '\\';
}

void AppendUnit(std::string& out, unsigned unit) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const char escape[] = {'\\',           'u', kHex[(unit >> 12) & 15], kHex[(unit >> 8) & 15], kHex[(unit >> 4) & 15],
                         kHex[unit & 15]};
  out.append(escape, sizeof escape);
}

void AppendEscaped(std::string& out, char32_t c) {
  switch (c) {
    case '"':
      out.append("\\\"");
      return;
    case '\\':
      out.append("\\\\");
      return;
    case '\n':
      out.append("\\n");
      return;
    case '\r':
      out.append("\\r");
      return;
    case '\t':
      out.append("\\t");
      return;
    default:
      break;
  }
  if (c < 0x10000) return AppendUnit(out, static_cast<unsigned>(c));
  const auto v = static_cast<unsigned>(c) - 0x10000;
  AppendUnit(out, 0xd800 + (v >> 10));
  AppendUnit(out, 0xdc00 + (v & 0x3ff));
}

void AppendDouble(std::string& out, double d) {
  if (!std::isfinite(d)) {
    out.append("null");
  } else {
    fmt::format_to(std::back_inserter(out), "{}", d);
  }
}

void AppendValue(std::string& out, const json::value& v);

void AppendObject(std::string& out, const json::object& o) {
  char separator = '{';
  for (const auto& e : o) {
    out.push_back(separator);
    separator = ',';
    AppendJsonAscii(out, std::string_view(e.key().data(), e.key().size()));
    out.push_back(':');
    AppendValue(out, e.value());
  }
  out.append(o.empty() ? "{}" : "}");
}

void AppendArray(std::string& out, const json::array& a) {
  char separator = '[';
  for (const auto& e : a) {
    out.push_back(separator);
    separator = ',';
    AppendValue(out, e);
  }
  out.append(a.empty() ? "[]" : "]");
}

void AppendValue(std::string& out, const json::value& v) {
  switch (v.kind()) {
    case json::kind::null:
      out.append("null");
      break;
    case json::kind::bool_:
      out.append(v.get_bool() ? "true" : "false");
      break;
    case json::kind::int64:
      fmt::format_to(std::back_inserter(out), "{}", v.get_int64());
      break;
    case json::kind::uint64:
      fmt::format_to(std::back_inserter(out), "{}", v.get_uint64());
      break;
    case json::kind::double_:
      AppendDouble(out, v.get_double());
      break;
    case json::kind::string:
      AppendJsonAscii(out, std::string_view(v.get_string().data(), v.get_string().size()));
      break;
    case json::kind::array:
      AppendArray(out, v.get_array());
      break;
    case json::kind::object:
      AppendObject(out, v.get_object());
      break;
  }
}

}  // namespace

void AppendJsonAscii(std::string& out, std::string_view utf8) {
  out.push_back('"');
  while (!utf8.empty()) {
    size_t plain = 0;
    while (plain < utf8.size() && IsPlain(utf8[plain])) ++plain;
    out.append(utf8.substr(0, plain));
    utf8.remove_prefix(plain);
    if (utf8.empty()) break;
    const Utf8Step step = DecodeUtf8(utf8);
    AppendEscaped(out, step.code_point);
    // Length 0: the text ends inside a character; what is left of it is one invalid sequence.
    utf8.remove_prefix(step.length == 0 ? utf8.size() : step.length);
  }
  out.push_back('"');
}

std::string ToAsciiJson(const json::value& value) {
  std::string out;
  AppendValue(out, value);
  return out;
}

std::string ToAsciiJson(const json::object& value) {
  std::string out;
  AppendObject(out, value);
  return out;
}

std::string NdjsonLine(const json::value& value) {
  std::string out = ToAsciiJson(value);
  out.push_back('\n');
  return out;
}

void AppendOutputLine(std::string& out, std::string_view stream, std::string_view utf8) {
  out.reserve(out.size() + utf8.size() + 40);
  out.append("{\"stream\":");
  AppendJsonAscii(out, stream);
  out.append(",\"data\":");
  AppendJsonAscii(out, utf8);
  out.append("}\n");
}

std::string ErrorLine(std::string_view code, std::string_view message) {
  std::string out = "{\"stream\":\"error\",\"data\":{\"code\":";
  AppendJsonAscii(out, code);
  out.append(",\"message\":");
  AppendJsonAscii(out, message);
  out.append("}}\n");
  return out;
}

std::string Utf8Stream::Feed(std::string_view bytes) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_ + std::string(bytes);
    bytes = joined;
    pending_.clear();
  }
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    size_t ascii = 0;
    while (ascii < bytes.size() && static_cast<signed char>(bytes[ascii]) >= 0) ++ascii;
    out.append(bytes.substr(0, ascii));
    bytes.remove_prefix(ascii);
    if (bytes.empty()) break;
    const Utf8Step step = DecodeUtf8(bytes);
    if (step.length == 0) {
      pending_ = bytes;
      break;
    }
    out.append(step.valid ? bytes.substr(0, step.length) : kReplacement);
    bytes.remove_prefix(step.length);
  }
  return out;
}

std::string Utf8Stream::Flush() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacement);
}

}  // namespace sandbar::wire
