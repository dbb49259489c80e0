// A transcript as one page that needs nothing else: no script, no request, everything from outside escaped.
#include "wire/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/base64.h"
#include "base/printable.h"
#include "client/api_client.h"
#include "llm/transcript.h"
#include "wire/ndjson.h"

namespace sandbar::llm {
namespace {

using client::Number;
using client::Object;
using client::Text;

constexpr char kHead[] = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Model run</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --red: #c33; --green: #283; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: .6rem .8rem; border-radius: 6px;
  font: 13px/1.45 ui-monospace, monospace; max-height: 30rem; overflow: auto; margin: .4rem 0; }
section { border-left: 3px solid var(--line); padding: .1rem 0 .1rem 1rem; margin: 1rem 0; }
.meta { color: gray; font-size: 13px; } .bad { color: var(--red); } .good { color: var(--green); }
h1 { font-size: 1.3rem; } h2 { font-size: 1rem; margin: .2rem 0; } img { max-width: 100%; }
</style></head><body>
)";

std::string Pre(std::string_view text) {
  return text.empty() ? std::string() : "<pre>" + EscapeHtml(text) + "</pre>\n";
}

std::string Seconds(const json::object& event) {
  return fmt::format("{:.1f} s", static_cast<double>(Number(event, "ms")) / 1000);
}

std::string ContentHtml(const json::object& event) {
  std::string out;
  const json::value* content = event.if_contains("content");
  if (content == nullptr || !content->is_array()) return out;
  for (const auto& item : content->as_array()) {
    if (!item.is_object()) continue;
    const json::object& part = item.as_object();
    const std::string mime = Text(part, "mimeType"), data = Text(part, "data");
    const bool image = mime == "image/png" || mime == "image/jpeg" || mime == "image/gif" || mime == "image/webp";
    if (image && IsBase64Text(data)) {
      out += "<img alt=\"image from the sandbox\" src=\"data:" + mime + ";base64," + data + "\">\n";
    } else {
      out += Pre(Text(part, "text"));
    }
  }
  return out;
}

std::string InputHtml(const json::object& input) {
  std::string out;
  for (const auto& pair : input) {
    const std::string text =
        pair.value().is_string() ? std::string(pair.value().as_string()) : wire::ToAsciiJson(pair.value());
    out += "<div class=\"meta\">" + EscapeHtml(pair.key()) + "</div>" + Pre(text);
  }
  return out;
}

std::string EventHtml(const json::object& event) {
  const std::string type = Text(event, "type");
  if (type == "start")
    return "<h1>" + EscapeHtml(Text(event, "prompt")) + "</h1>\n<p class=\"meta\">" + EscapeHtml(Text(event, "model")) +
           " · " + EscapeHtml(Text(event, "sandbox")) + "</p>\n";
  if (type == "reply") {
    const json::object& usage = Object(event, "usage");
    return fmt::format("<section><h2>Step {}</h2><div class=\"meta\">{} + {} tokens · {}</div>\n{}</section>\n",
                       Number(event, "step"), Number(usage, "input"), Number(usage, "output"), Seconds(event),
                       Pre(Text(event, "text")));
  }
  if (type == "call")
    return "<section><h2>" + EscapeHtml(Text(event, "name")) + "</h2>" + InputHtml(Object(event, "input")) +
           "</section>\n";
  if (type == "tool") {
    const bool bad = Number(event, "exitCode") != 0 ||
                     (event.contains("isError") && event.at("isError").is_bool() && event.at("isError").as_bool());
    return fmt::format("<section><div class=\"{}\">result · {} · {} B</div>\n{}</section>\n", bad ? "bad" : "good",
                       Seconds(event), Number(event, "bytes"), ContentHtml(event));
  }
  if (type == "retry" || type == "note")
    return "<p class=\"meta\">" + EscapeHtml(Text(event, type == "note" ? "text" : "reason")) + "</p>\n";
  if (type == "end") {
    const bool good = Text(event, "status") == "answered";
    return "<section><h2 class=\"" + std::string(good ? "good" : "bad") + "\">" + EscapeHtml(Text(event, "status")) +
           ": " + EscapeHtml(Text(event, "reason")) + "</h2><div class=\"meta\">" + Seconds(event) + "</div>" +
           Pre(Text(event, "answer")) + "</section>\n";
  }
  return {};
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  return wire::EscapeHtml(PrintableLines(text));
}

std::string TranscriptHtml(const std::vector<json::object>& events) {
  std::string page = kHead;
  for (const json::object& event : events) page += EventHtml(event);
  return page + "</body></html>\n";
}

}  // namespace sandbar::llm
